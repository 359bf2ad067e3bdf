// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

var (
	kernelEvent = regexp.MustCompile(`^\{"ph":"X","cat":"[kK]ernel","name":"([^"]*)"`)
	hostThread  = regexp.MustCompile(`"pid":800,"tid":(\d+)`)
	startTime   = regexp.MustCompile(`"ts":(\d+)\.(\d+)`)
)

// variants returns other formats of the same run.
func variants() map[string]func(m *machine) {
	return map[string]func(m *machine){
		"as it is": func(*machine) {},
		"in another order": func(m *machine) {
			r := rand.New(rand.NewPCG(7, 7))
			r.Shuffle(len(m.events), func(i, j int) { m.events[i], m.events[j] = m.events[j], m.events[i] })
		},
		"times since 1970": func(m *machine) {
			for i, e := range m.events {
				m.events[i] = startTime.ReplaceAllStringFunc(e, func(ts string) string {
					us, fraction, _ := strings.Cut(strings.TrimPrefix(ts, `"ts":`), ".")
					return fmt.Sprintf(`"ts":17514108%08s.%s`, us, fraction)
				})
			}
		},
		"unknown kernels": func(m *machine) {
			names := map[string]string{}
			for i, e := range m.events {
				at := kernelEvent.FindStringSubmatchIndex(e)
				if at == nil {
					continue
				}
				name := e[at[2]:at[3]]
				if slices.ContainsFunc([]string{"nccl", "elementwise_kernel", "sgemm", "Nhwc", "Nchw"}, func(part string) bool {
					return strings.Contains(name, part)
				}) {
					continue // only the name identifies these
				}
				if names[name] == "" {
					names[name] = fmt.Sprintf("_Z1k%d", len(names))
				}
				m.events[i] = e[:at[2]] + names[name] + e[at[3]:]
			}
		},
		"times after a base":    func(m *machine) { m.head = `"baseTimeNanoseconds":1700000000000000000,` },
		"shown in milliseconds": func(m *machine) { m.head = `"displayTimeUnit":"ms",` },
		"shown in nanoseconds":  func(m *machine) { m.head = `"displayTimeUnit":"ns",` },
		"threads with names": func(m *machine) {
			for i, e := range m.events {
				m.events[i] = hostThread.ReplaceAllString(e, `"pid":800,"tid":"worker (python) $1"`)
			}
		},
		"rows that are named and sorted": func(m *machine) {
			m.events = append(m.events,
				`{"ph":"M","name":"process_name","pid":800,"tid":0,"ts":0,"args":{"name":"python"}}`,
				`{"ph":"M","name":"process_sort_index","pid":0,"tid":0,"ts":0,"args":{"sort_index":5000000}}`,
				`{"ph":"M","name":"thread_name","pid":0,"tid":7,"ts":0,"args":{"name":"stream 7"}}`,
				`{"ph":"i","s":"g","name":"Record Window End","pid":"","tid":"","ts":9}`)
		},
	}
}

// everything returns all simulated jobs, with -short every fourth.
func everything() map[string]program {
	all := programs()
	for _, more := range []map[string]program{shapes(), faults(), services(), troubles(), moving()} {
		maps.Copy(all, more)
	}
	if testing.Short() {
		for i, name := range slices.Sorted(maps.Keys(all)) {
			if i%4 > 0 {
				delete(all, name)
			}
		}
	}
	return all
}

// A run's first finding does not depend on the format.
func TestVariantsOfSimulatedJobsHaveTheSameFindings(t *testing.T) {
	all := everything()
	for n, name := range slices.Sorted(maps.Keys(all)) {
		if otherJob(n) {
			continue
		}
		p, seed := all[name], uint64(900+n)
		want := map[string]facts.Report{}
		for _, v := range slices.Sorted(maps.Keys(variants())) {
			for i, s := range styles() {
				if i%3 != n%3 || testing.Short() && i >= 3 { // each job in one or two styles
					continue
				}
				t.Run(name+"/"+s.name+"/"+v, func(t *testing.T) {
					m := newMachine(seed, s)
					p.run(m, true)
					variants()[v](m)
					_, st := convert(t, m.text(max(1, p.devices)), Options{Detail: DetailSteps})
					d := st.Devices[len(st.Devices)-1]
					if v == "as it is" {
						want[s.name] = d
						return
					}
					first, is := want[s.name].Findings[0], d.Findings[0]
					assert.Equal(t, first.Kind, is.Kind, "%s\n%s", first, is)
					assert.InEpsilon(t, first.Gain+1, is.Gain+1, 0.01, "%s\n%s", first, is)
				})
			}
		}
	}
}

// The same run without its fault has no finding of the fault's kind, or a small one.
func TestHealthyTwinsOfSimulatedJobs(t *testing.T) {
	all := everything()
	for n, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		for i, s := range styles() {
			if i%3 != n%3 {
				continue
			}
			text := func(sick bool) string {
				m := newMachine(uint64(n), s)
				p.run(m, sick)
				return m.text(max(1, p.devices))
			}
			if p.kind == "" || p.kind == semconv.GPUFindingKindNoLoad || text(true) == text(false) {
				continue // healthy, or only sick
			}
			t.Run(name+"/"+s.name, func(t *testing.T) {
				first := func(sick bool) finding.Finding {
					_, st := convert(t, text(sick), Options{Detail: DetailSteps})
					return st.Devices[len(st.Devices)-1].Findings[0]
				}
				if v := first(false); v.Kind == p.kind {
					assert.Less(t, v.Gain, first(true).Gain/4, "%s", v)
				}
			})
		}
	}
}

// A profiler that is started and stopped during work omits activities that started before or ended
// after.
func TestTruncatedSimulatedJobs(t *testing.T) {
	same := []string{
		"loader", "launch-bound", "synchronization in every layer", "copies that nothing hides", "allocator",
		"exposed communication", "work of the host between steps", "hooks of Python around each layer",
		"a second process that is starved", "graphs that are captured again and again",
	}
	all := everything()
	for n, name := range slices.Sorted(maps.Keys(all)) {
		if otherJob(n) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p, s := all[name], styles()[n%len(styles())]
			m := newMachine(uint64(n), s)
			p.run(m, true)
			_, st := convert(t, m.text(max(1, p.devices)), Options{Detail: DetailSteps})
			kind := st.Devices[len(st.Devices)-1].Findings[0].Kind
			end := m.now
			for device := range int64(max(1, p.devices)) {
				end = max(end, m.busy(device))
			}
			from, to := end/5, end*4/5
			m.events = slices.DeleteFunc(m.events, func(text string) bool {
				var e traced
				require.NoError(t, json.Unmarshal([]byte(text), &e))
				return ns(e.Ts) < from || ns(e.Ts)+ns(e.Dur) > to // launches of work that runs then are missing, too
			})
			_, st = convert(t, m.text(max(1, p.devices)), Options{Detail: DetailSteps})
			for _, d := range st.Devices {
				checkReport(t, d)
			}
			if slices.Contains(same, name) {
				assert.Equal(t, kind, st.Devices[len(st.Devices)-1].Findings[0].Kind)
			}
		})
	}
}

// Each device in a file has its own cause.
func TestDevicesOfOneFileAreAnalyzedSeparately(t *testing.T) {
	for _, s := range styles() {
		m := newMachine(3, s)
		for range 10 {
			m.device = 0
			start := m.now
			m.load(4_000_000)
			m.layers(40, 150_000)
			m.wait("")
			end := m.now
			m.now, m.device = start, 1
			m.of("801", 4811, func() {
				m.layers(40, 150_000)
				m.copies("HtoD (Pageable -> Device)", 30_000_000, 4_000_000, 7)
				m.wait("")
			})
			m.now = max(end, m.now)
		}
		_, st := convert(t, m.text(2), Options{Detail: DetailSteps})
		require.Len(t, st.Devices, 2)
		for i, kind := range []string{semconv.GPUFindingKindLoader, semconv.GPUFindingKindPageableCopies} {
			checkReport(t, st.Devices[i])
			first := st.Devices[i].Findings[0]
			assert.Equal(t, kind, first.Kind, "%s: %s", s.name, st.Devices[i].Findings)
			assert.InDelta(t, 40, float64(first.Gain)/1e6, 4, "%s: %s", s.name, first)
		}
	}
}
