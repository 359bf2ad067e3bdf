// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

var update = flag.Bool("freshjobs.update", false, "write testdata/causes.json")

// causes are the microseconds that the cause costs a step, by kind and variant: solving for the
// wanted share takes 20 simulations.
func causes(t testing.TB) map[string][variants]float64 {
	t.Helper()
	text, err := os.ReadFile("testdata/causes.json")
	require.NoError(t, err)
	var all map[string][variants]float64
	require.NoError(t, json.Unmarshal(text, &all))
	return all
}

func TestCausesCostTheirShares(t *testing.T) {
	if !*update {
		t.Skip("-freshjobs.update solves for the shares, for half a minute")
	}
	all := map[string][variants]float64{}
	for i, k := range kinds() {
		var x [variants]float64
		for v := range x {
			x[v] = k.cause(i, v)
		}
		all[k.name] = x
	}
	for i, k := range rankKinds {
		var x [variants]float64
		for v := range x {
			x[v] = k.cost(i, v)
		}
		all[k.name] = x
	}
	text, err := json.MarshalIndent(all, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("testdata/causes.json", append(text, '\n'), 0o644))
}

// first returns the kind of the first finding of a file, as convert prints it.
func first(t testing.TB, k kind, path string) string {
	t.Helper()
	o := profiletrace.Options{Detail: kinetoreceiver.DetailSteps, Partial: true, Paths: true}
	drop := func(context.Context, ptrace.Traces) error { return nil }
	var st profiletrace.Stats
	var err error
	if k.format == "nsys" {
		st, err = nsysreceiver.ReadFile(t.Context(), path, o, drop)
	} else {
		var read kinetoreceiver.Stats
		read, err = kinetoreceiver.ReadFile(t.Context(), path, o, drop)
		st = read.Stats
	}
	require.NoError(t, err)
	for _, d := range st.Devices {
		for _, f := range d.Findings {
			return f.Kind
		}
	}
	if st.Host != nil {
		return st.Host.Kind
	}
	return "none"
}

// The first finding of each file is the cause that the simulator put there, except for the known
// misses. Beside integration tests, every third file is read.
func TestFirstFindings(t *testing.T) {
	all := os.Getenv("OTELGPU_INTEGRATION") != ""
	x := causes(t)
	for i, k := range kinds() {
		for v := range variants {
			if k.format == "nsys" && !sqlitetest.Available() || !all && v != i%variants || testing.Short() && i%4 > 0 {
				continue
			}
			name := fmt.Sprintf("%s_%d", slug(k.name), v)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := k.simulate(uint64(i*variants+v), x[k.name][v])
				said := first(t, k, k.write(t, s, t.TempDir(), name))
				if want, ok := missed[name]; ok {
					assert.Equal(t, want, said, "a known miss: remove it from the list if it is right now")
					return
				}
				assert.Contains(t, k.right(v), said)
			})
		}
	}
}

// The job's finding is the delay or the link that the simulator put there, and nothing where there
// is none. Beside integration tests, one folder of a few kinds is read.
func TestRanks(t *testing.T) {
	all := os.Getenv("OTELGPU_INTEGRATION") != ""
	x := causes(t)
	for i, k := range rankKinds {
		for v := range variants {
			if !all && (v != i%variants || i%3 != 1) {
				continue
			}
			name := fmt.Sprintf("ranks_%s_%d", slug(k.name), v)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				simulated, late := k.ranks(rankSeed(i, v), x[k.name][v])
				var ranks jobs.Profiles
				for r, s := range simulated {
					if k.absent > 0 && r == (late+k.absent)%k.world {
						continue
					}
					file := fmt.Sprintf("rank%d.pt.trace.json", r)
					st, err := kinetoreceiver.Read(t.Context(), bytes.NewReader(s.kineto()), profiletrace.Options{
						Detail: kinetoreceiver.DetailSteps, Paths: true,
						Observe: func(in *link.Input) link.Observer {
							if o := ranks.Observe(file, in); o != nil {
								return o
							}
							return link.Observers{}
						},
					}, func(context.Context, ptrace.Traces) error { return nil })
					require.NoError(t, err)
					ranks.Judged(file, st.Devices)
				}
				said, names := "none", ""
				for _, j := range ranks.Jobs() {
					for _, f := range j.Findings() {
						if said == "none" {
							said = f.Kind
						}
					}
					names, _, _ = strings.Cut(j.Says, "Critical path")
				}
				if want, ok := missed[name]; ok {
					assert.Equal(t, want, said, "a known miss: remove it from the list if it is right now")
					return
				}
				if k.accept == "-" {
					assert.NotContains(t, []string{"late_rank", "slow_group", "expert_imbalance", "hung_rank"}, said, names)
					return
				}
				assert.Contains(t, strings.Fields(k.accept), said)
				if k.slow == nil {
					assert.Regexp(t, fmt.Sprintf(`rank %d\b`, late), names)
				}
			})
		}
	}
}
