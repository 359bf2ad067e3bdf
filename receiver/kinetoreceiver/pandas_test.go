// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kinetoreceiver

import (
	"bufio"
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/profiletracetest"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pandas returns a Python with pandas: $PYTHON, python3 or /usr/bin/python3.
func pandas(b *testing.B) string {
	var tried []string
	for _, p := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if p == "" || slices.Contains(tried, p) {
			continue
		}
		if exec.CommandContext(b.Context(), p, "-c", "import pandas").Run() == nil {
			return p
		}
		tried = append(tried, p)
	}
	b.Skipf("no Python with pandas among %s: set PYTHON to one", strings.Join(tried, ", "))
	return ""
}

// sums is the output of testdata/sums.py: integer nanoseconds, except for Seconds.
type sums struct {
	Devices map[string]struct {
		Window, Busy, Kernel, Compute, Comm, Overlap, Memory int64
		KernelCount                                          int64 `json:"kernel_count"`
		IdleHost                                             int64 `json:"idle_host"`
		IdleLaunch                                           int64 `json:"idle_launch"`
		IdleUnknown                                          int64 `json:"idle_unknown"`
		Queue                                                int64 `json:"queue"`
		// idle time before late launches, by activity of the launching thread, and idle time in
		// which launched work had not started
		Idle          struct{ Host, Launched int64 } `json:"idle"`
		Names         map[string]int64               // kernel time
		Pageable      [3]int64                       // copies, bytes, time
		Short, Narrow [2]int64                       // kernels, time
	}
	Steps []struct {
		Name                             string
		Duration, Busy, Kernels, Exposed int64
		Phases                           map[string]int64
		Allocated                        *int64
		AllocatedMax                     *int64 `json:"allocated_max"`
	}
	Streams   map[string]int64 // time of activities
	Copies    map[string]struct{ Bytes, NS int64 }
	Operators map[string][2]int64 // innermost around the launch: activities, time
	FLOPs     map[string]float64  // of matrix products, by operator
	Auto      struct {
		Sections [3]int64 // projections of ranges, length, busy time
		Single   int64    // activities that matter
	}
	Everything struct {
		Inclusive map[string][2]int64 // activities and time below operators
	} `json:"kernels"`
	Waits      [2]int64 // calls that wait for the device, time
	Resolution float64  // ns, of a time in the file as a double; 0 if times are integers
	Seconds    float64
}

func pythonSums(b *testing.B, python, path string, detail Detail) (s sums) {
	cmd := exec.CommandContext(b.Context(), python, filepath.Join("testdata", "sums.py"), path, detail.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(b, err)
	require.NoError(b, json.Unmarshal(out, &s))
	return s
}

// check compares the sums with the spans of devices and steps from Read, and with the totals of its
// activity spans. If Python handles times as doubles, sums may differ by their resolution for each
// activity.
func (s *sums) check(b *testing.B, path string) {
	batches, st := read(b, path, Options{Detail: DetailSteps})
	s.checkProducts(b, &st)
	slack := s.Resolution / 1e9 * 2 * float64(st.Kernels+st.Copies+st.Memsets)
	near := func(want int64, have any, what string) {
		f, _ := have.(float64)
		assert.InDelta(b, seconds(want), f, slack+1e-12, what)
	}
	for id, d := range s.Devices {
		a := find(b, batches, "GPU "+id).Attributes().AsRaw()
		for key, want := range map[string]int64{
			"duration": d.Window, "busy.duration": d.Busy, "kernel.duration": d.Kernel, "compute.duration": d.Compute,
			"comm.duration": d.Comm, "overlap.duration": d.Overlap, "memory.duration": d.Memory,
			"idle.duration": d.IdleHost + d.IdleLaunch + d.IdleUnknown,
		} {
			near(want, a["gpu.window."+key], key)
		}
		assert.Equal(b, d.KernelCount, a["gpu.window.kernel.count"])
		assert.InDelta(b, d.Queue, a["gpu.window.queue.max"], 2*s.Resolution, "queue")
		for _, r := range st.Devices {
			if "GPU "+strconv.FormatInt(r.Ordinal, 10) != "GPU "+id {
				continue
			}
			var pageable [3]int64
			for _, c := range r.Copies {
				if c.Memory == "pageable" {
					pageable[0], pageable[1] = pageable[0]+c.Count, pageable[1]+c.Bytes
					pageable[2] += int64(c.Time)
				}
			}
			assert.Equal(b, d.Pageable, pageable)
			var idle, launched int64
			for _, c := range r.Idle {
				switch idle += int64(c.Time); c.Cause {
				case timeline.CauseLatency, timeline.CauseDependency:
					launched += int64(c.Time)
				}
			}
			assert.InDelta(b, d.Idle.Launched, launched, 1e9*slack, "launched and not begun")
			assert.InDelta(b, d.Idle.Host+d.IdleUnknown, idle-launched, 1e9*slack, "what the host did")
		}
	}
	for _, w := range s.Steps {
		a := find(b, batches, w.Name).Attributes().AsRaw()
		near(w.Duration, a["gpu.step.duration"], w.Name)
		near(w.Busy, a["gpu.step.busy.duration"], w.Name)
		near(w.Exposed, a["gpu.step.comm.exposed.duration"], w.Name)
		if w.Busy > 0 {
			assert.InDelta(b, w.Kernels, a["gpu.kernel.count"], 2*s.Resolution, w.Name)
		}
		for phase, ns := range w.Phases {
			near(ns, a["gpu.step.phase.duration."+phase], w.Name+" "+phase)
		}
		if w.Allocated != nil {
			assert.Equal(b, *w.Allocated, a["gpu.memory.allocated.delta"])
		}
		if w.AllocatedMax != nil {
			assert.Equal(b, *w.AllocatedMax, a["gpu.memory.allocated.max"])
		}
	}
}

func (s *sums) checkActivities(b *testing.B, path string) {
	batches, _ := read(b, path, Options{Detail: DetailKernels})
	names, streams, bytes, copies := map[string]int64{}, map[int64]int64{}, map[string]int64{}, map[string]int64{}
	for _, sp := range spansOf(batches) {
		a, ns := sp.Attributes().AsRaw(), int64(sp.EndTimestamp()-sp.StartTimestamp())
		switch kind := a["gpu.operation.type"]; kind {
		case "kernel", "collective":
			names[a["gpu.kernel.name"].(string)] += ns
		case "copy":
			d, _ := a["gpu.copy.direction"].(string)
			copies[d] += ns
			bytes[d] += a["gpu.io.size"].(int64)
		case "memset":
		default:
			continue
		}
		streams[a["gpu.stream.id"].(int64)] += ns
	}
	s.checkOperators(b, spansOf(batches))
	for _, d := range s.Devices {
		for name, ns := range d.Names {
			assert.Equal(b, ns, names[name], name)
		}
	}
	for id, ns := range s.Streams {
		n, _ := strconv.ParseInt(strings.TrimPrefix(id, "stream "), 10, 64)
		assert.Equal(b, ns, streams[n], "stream %s", id)
	}
	for d, w := range s.Copies {
		assert.Equal(b, w.Bytes, bytes[profiletracetest.Directions[d]], d)
		assert.Equal(b, w.NS, copies[profiletracetest.Directions[d]], d)
	}
}

// checkOperators compares totals of activity spans by enclosing operator.
func (s *sums) checkOperators(b *testing.B, list []ptrace.Span) {
	byID := map[pcommon.SpanID]ptrace.Span{}
	for _, sp := range list {
		byID[sp.SpanID()] = sp
	}
	operators, inclusive := map[string][2]int64{}, map[string][2]int64{}
	for _, sp := range list {
		switch sp.Attributes().AsRaw()["gpu.operation.type"] {
		case "kernel", "collective", "copy", "memset":
		default:
			continue
		}
		innermost := true
		for up, ok := byID[sp.ParentSpanID()]; ok; up, ok = byID[up.ParentSpanID()] {
			add := func(to map[string][2]int64) {
				n := to[up.Name()]
				to[up.Name()] = [2]int64{n[0] + 1, n[1] + int64(sp.EndTimestamp()-sp.StartTimestamp())}
			}
			if _, is := s.Operators[up.Name()]; is && innermost {
				add(operators)
				innermost = false
			}
			if _, is := s.Everything.Inclusive[up.Name()]; is {
				add(inclusive)
			}
		}
	}
	assert.Equal(b, s.Operators, operators)
	assert.Equal(b, s.Everything.Inclusive, inclusive)
}

// checkProjections compares the sections of the level auto with the spans, if no limit dropped any.
func (s *sums) checkProjections(b *testing.B, path string) {
	batches, st := read(b, path, Options{Detail: DetailAuto, MaxSpans: -1, MaxBytes: -1})
	assert.Zero(b, st.Cut)
	var sections [3]int64
	single := int64(0)
	for _, sp := range spansOf(batches) {
		a := sp.Attributes().AsRaw()
		switch a["gpu.operation.type"] {
		case "section":
			sections[0]++
			sections[1] += int64(math.Round(a["gpu.duration"].(float64) * 1e9))
			sections[2] += int64(math.Round(a["gpu.operation.busy.duration"].(float64) * 1e9))
		case "kernel", "collective", "copy":
			single++
		}
	}
	assert.Equal(b, s.Auto.Sections[0], sections[0])
	for i := range s.Auto.Sections { // times as doubles have an error at both ends
		assert.InDelta(b, s.Auto.Sections[i], sections[i], 2*s.Resolution*float64(sections[0]))
	}
	assert.Equal(b, s.Auto.Single, single)
}

// checkProducts compares FLOPs of matrix products with the report of the devices.
func (s *sums) checkProducts(b *testing.B, st *Stats) {
	have := map[string]float64{}
	for _, d := range st.Devices {
		for _, o := range d.Operators {
			have[o.Name] += o.FLOPs
		}
	}
	for name, want := range s.FLOPs {
		assert.InEpsilon(b, want, have[name], 1e-9, name)
	}
}

// BenchmarkAgainstPandas reads uncompressed traces from files alternately with ReadFile and with
// testdata/sums.py. It first compares their sums. Then it reports the minimum time of each over the
// iterations (including garbage collection; without starting Python and importing pandas) as MB and
// events per second of one core, and the speedup of ReadFile at each detail: on one core (x-steps),
// by CPU time, and on two as users run it (x-steps-on-2), by elapsed time, which is meaningful only
// on an otherwise idle machine. Python always uses one core. cpu-on-2 is the CPU time of ReadFile
// on two cores relative to one. Both compute the same results at each detail; testdata/sums.py
// lists what either omits.
func BenchmarkAgainstPandas(b *testing.B) {
	python := pandas(b)
	dir := b.TempDir()
	files := map[string]string{}
	for name, file := range benchFiles {
		files[name] = filepath.Join(dir, name+".json")
		require.NoError(b, os.WriteFile(files[name], plain(b, file), 0o600))
	}
	files["synthetic_64MB"] = filepath.Join(dir, "synthetic.json")
	f, err := os.Create(files["synthetic_64MB"])
	require.NoError(b, err)
	w := bufio.NewWriter(f)
	_, err = writeSynthetic(w, 64<<20)
	require.NoError(b, err)
	require.NoError(b, w.Flush())
	require.NoError(b, f.Close())
	for name, path := range files {
		b.Run(name, func(b *testing.B) {
			details := []Detail{DetailSteps, DetailAuto, DetailKernels}
			theirs := make([]float64, len(details))
			var ours [2][]measured // by processors
			for n := range ours {
				ours[n] = slices.Repeat([]measured{{math.Inf(1), math.Inf(1)}}, len(details))
			}
			for i, detail := range details {
				first := pythonSums(b, python, path, detail)
				switch detail {
				case DetailSteps:
					first.check(b, path)
				case DetailAuto:
					first.checkProjections(b, path)
				case DetailKernels:
					first.checkActivities(b, path)
				}
				theirs[i] = first.Seconds
			}
			var st Stats
			for b.Loop() {
				for i, detail := range details {
					for n := range ours {
						st = ours[n][i].measure(b, n+1, path, detail)
					}
					theirs[i] = min(theirs[i], pythonSums(b, python, path, detail).Seconds)
				}
			}
			one := ours[0][0].cpu
			for i, detail := range details {
				b.ReportMetric(theirs[i]/ours[0][i].cpu, "x-"+detail.String())
				b.ReportMetric(theirs[i]/ours[1][i].passed, "x-"+detail.String()+"-on-2")
			}
			b.ReportMetric(ours[1][0].cpu/one, "cpu-on-2")
			b.ReportMetric(float64(st.JSONBytes)/1e6/one, "MB/s")
			b.ReportMetric(float64(st.JSONBytes)/1e6/theirs[0], "MB/s-pandas")
			b.ReportMetric(float64(st.Records)/one, "events/s")
			b.ReportMetric(float64(st.Records)/theirs[0], "events/s-pandas")
		})
	}
}

// measured is the minimum time of several readings, in seconds.
type measured struct{ passed, cpu float64 }

func (m *measured) measure(b *testing.B, processors int, path string, detail Detail) Stats {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors)) // -cpu does not apply to a benchmark's first round
	before, begin := processorTime(b), time.Now()
	st, err := ReadFile(b.Context(), path, Options{Detail: detail}, func(context.Context, ptrace.Traces) error { return nil })
	m.passed = min(m.passed, time.Since(begin).Seconds())
	m.cpu = min(m.cpu, (processorTime(b) - before).Seconds())
	require.NoError(b, err)
	return st
}
