// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	compared "github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/profiletracetest"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

func truth(t *testing.T, into any, elem ...string) string {
	dir := recorded.Path(t, append([]string{"xplane"}, elem...)...)
	b, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, into))
	return dir
}

// Each line and each module (a program of XLA) of these files has as many events, and as much time, as
// jax.profiler.ProfileData states: to the nanosecond, since the files are in whole ones.
func TestLinesAndModulesEqualProfileData(t *testing.T) {
	type sum struct {
		events int
		time   int64 // ps
	}
	for _, name := range []string{"mlp", "conv", "pmap", "scan"} {
		var want struct {
			Planes []struct {
				Name  string
				Lines []struct {
					Name   string
					Events int
					Sum    float64 `json:"sum_duration_ns"`
				}
			}
			Ops []struct {
				Module string `json:"hlo_module"`
				Count  int
				Sum    float64 `json:"sum_duration_ns"`
			} `json:"hlo_ops"`
		}
		dir := truth(t, &want, name)
		paths, err := filepath.Glob(filepath.Join(dir, "*.xplane.pb*"))
		require.NoError(t, err)
		wanted, found := map[string]sum{}, map[string]sum{}
		for _, p := range want.Planes {
			for _, l := range p.Lines {
				wanted[p.Name+"/"+l.Name] = sum{l.Events, int64(l.Sum * 1000)}
			}
		}
		for _, o := range want.Ops {
			s := wanted["module "+o.Module]
			wanted["module "+o.Module] = sum{s.events + o.Count, s.time + int64(o.Sum*1000)}
		}
		f, err := os.Open(paths[0])
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		c := &collect{space: &space{}, unknown: described{}}
		require.NoError(t, from(t.Context(), f, c.space.tables))
		require.NoError(t, from(t.Context(), f, func(w *wire) error {
			return c.space.events(w, func(p *plane, l *line, b []byte) error {
				var id, duration int64
				var stats [][]byte
				require.NoError(t, each(b, func(num protowire.Number, n uint64, b []byte) {
					switch num {
					case 1:
						id = int64(n)
					case 3:
						duration = int64(n)
					case 4:
						stats = append(stats, b)
					}
				}))
				rows := []string{p.name + "/" + l.name}
				require.NoError(t, c.state(p, p.events[id], stats))
				if c.facts.operator != "" {
					rows = append(rows, "module "+c.facts.module)
				}
				for _, row := range rows {
					s := found[row]
					found[row] = sum{s.events + 1, s.time + duration}
				}
				return nil
			})
		}))
		assert.Equal(t, wanted, found, name)
	}
}

// Files of jax 0.12 on a CPU: operators and steps equal what jax.profiler.ProfileData reads.
func TestOperatorsAndStepsEqualProfileData(t *testing.T) {
	for _, name := range []string{"mlp", "conv", "pmap", "scan"} {
		t.Run(name, func(t *testing.T) {
			var want struct {
				Ops []struct {
					Op    string `json:"hlo_op"`
					Count int
					Sum   float64 `json:"sum_duration_ns"`
				} `json:"hlo_ops"`
				Steps [][]any
			}
			dir := truth(t, &want, name)
			paths, err := filepath.Glob(filepath.Join(dir, "*.xplane.pb*"))
			require.NoError(t, err)
			require.Len(t, paths, 1)
			list, st, err := spans(t, paths[0], kernels)
			require.NoError(t, err)
			assert.Empty(t, st.Faults)
			counts, sums := map[string]int{}, map[string]float64{}
			for _, o := range want.Ops { // of both devices
				counts[o.Op] += o.Count
				sums[o.Op] += o.Sum
			}
			for op, n := range counts {
				found := named(list, op)
				assert.Len(t, found, n, op)
				assert.InDelta(t, sums[op], profiletracetest.Sum(found), float64(n), op)
			}
			steps := named(list, want.Steps[0][0].(string))
			require.Len(t, steps, len(want.Steps))
			for i, s := range want.Steps {
				assert.EqualValues(t, s[1], steps[i].Int("gpu.step.index"))
				assert.InDelta(t, s[3], steps[i].End-steps[i].Start, 1)
				assert.InDelta(t, s[2].(float64)-want.Steps[0][2].(float64), steps[i].Start-steps[0].Start, 1)
			}
		})
	}
}

// Crafted files of GPUs and TPUs have the planted sums, in picoseconds; xprof's kernel_stats agrees
// for the GPUs.
func TestActivitiesEqualPlantedSums(t *testing.T) {
	var want struct {
		GPU struct{ Kernels map[string][2]int64 }
		TPU struct {
			Ops   map[string][5]any
			Steps [][3]int64
		}
		Start int64 `json:"T_ns"`
	}
	dir := truth(t, &want, "synthetic")
	by := func(file string) (map[string][]profiletracetest.Span, Stats) {
		list, st, err := spans(t, filepath.Join(dir, file), kernels)
		require.NoError(t, err)
		out := map[string][]profiletracetest.Span{}
		for _, s := range list {
			if s.Text("gpu.operation.type") == "kernel" || s.Text("gpu.operation.type") == "collective" {
				key := fmt.Sprintf("%d/%s", s.Int("gpu.device.ordinal"), s.Name)
				out[key] = append(out[key], s)
			} else if s.Text("gpu.operation.type") == "step" {
				out["steps"] = append(out["steps"], s)
			}
		}
		return out, st
	}
	gpu, _ := by("gpu/gpu.xplane.pb")
	for key, k := range want.GPU.Kernels {
		assert.Len(t, gpu[key], int(k[0]), key)
		assert.InDelta(t, float64(k[1])/1000, profiletracetest.Sum(gpu[key]), float64(k[0]), key)
	}
	tpu, st := by("tpu/tpu.xplane.pb")
	for key, k := range want.TPU.Ops {
		list := tpu[key]
		require.Len(t, list, int(k[0].(float64)), key)
		assert.InDelta(t, k[1].(float64)/1000, profiletracetest.Sum(list), k[0].(float64), key)
		if flops := k[2].(float64); flops > 0 {
			assert.Equal(t, flops, list[0].Attributes["gpu.flop.count"], key)
		}
	}
	require.Len(t, tpu["steps"], len(want.TPU.Steps), "once, not for each device")
	for i, s := range want.TPU.Steps {
		assert.Equal(t, want.Start+s[1]/1000, tpu["steps"][i].Start)
	}
	require.Len(t, st.Devices, 2)
	assert.Equal(t, "TPU v5e", st.Devices[0].Model)
	op := st.Devices[0].Operators[0]
	assert.Equal(t, "fusion.1", op.Name)
	// 5 × 17.18 GFLOP in 4.5237 ms, of 197 TFLOP/s
	assert.InDelta(t, 5*17179869184/4.523652761e-3/197e12, op.PeakShare, 1e-6)
	assert.Empty(t, st.Paths, "nothing states what launched the operators")
}

// Twenty steps whose operator takes 2 µs before and 3 µs after, in steps of 10 µs: the comparison has
// these values for each step, and idle time for the rest.
func TestComparisonsHaveThePlantedTimes(t *testing.T) {
	reports := func(kernel int64) []compared.Report {
		const steps, length = 20, 10_000_000 // picoseconds
		var marks, launches, kernels []message
		for i := range int64(steps) {
			marks = append(marks, at(1, i*length, length, stat(statStep, i)))
			launches = append(launches, at(2, i*length+100_000, 500_000, stat(statCorrelation, i+1)))
			kernels = append(kernels, at(1, i*length+1_000_000, kernel, stat(statCorrelation, i+1), textStat(statOperator, "dot.1")))
		}
		m := message{}.in(1, planeOf("/host:CPU", []string{"train", "cuLaunchKernel"}, row(3, "python", 1000, append(marks, launches...)...)))
		m = m.in(1, planeOf("/device:GPU:0", []string{"gemm"}, row(7, "Stream #7(Compute)", 1000, kernels...)))
		m = m.in(1, planeOf("Task Environment", nil).in(6, stat(statStart, 1_000_000_000)))
		_, st, err := spans(t, write(t, m), Options{})
		require.NoError(t, err)
		return st.Devices
	}
	c := compared.Compare(reports(2_000_000), reports(3_000_000))
	assert.True(t, c.PerStep)
	assert.Equal(t, [2]int64{20, 20}, c.StepCounts)
	for _, list := range [][]compared.Change{c.Operators, c.Kernels} {
		require.Len(t, list, 1)
		assert.Equal(t, [2]time.Duration{2000, 3000}, [2]time.Duration{list[0].Before, list[0].After})
	}
	assert.Equal(t, "dot.1", c.Operators[0].Name)
	assert.Equal(t, "gemm", c.Kernels[0].Name)
	sum := time.Duration(0)
	for _, p := range c.Parts {
		sum += p.Delta()
		if p.Name == "computing" {
			assert.Equal(t, time.Duration(1000), p.Delta())
		}
	}
	assert.InDelta(t, c.After-c.Before, sum, float64(len(c.Parts)))
}
