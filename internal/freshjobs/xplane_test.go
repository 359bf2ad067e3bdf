// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/xplanereceiver"
)

// jax is a program of JAX on one H100: a Python thread that dispatches, and streams. Times are in
// microseconds.
type jax struct {
	*rand.Rand
	now     float64
	streams map[string]float64 // end of the last activity
	frames  bool               // the Python tracer is on
	corr    int64
	rows    map[string][]string // encoded events
	ids     map[string]int64    // of names, of events as of statistics
}

func newJAX(seed uint64, frames bool) *jax {
	return &jax{
		Rand: rand.New(rand.NewPCG(seed, 3)), now: 100, streams: map[string]float64{}, frames: frames,
		rows: map[string][]string{}, ids: map[string]int64{},
	}
}

func (j *jax) vary(us, rel float64) float64 { return us * math.Max(0.3, 1+rel*j.NormFloat64()) }

func (j *jax) id(name string) uint64 {
	if j.ids[name] == 0 {
		j.ids[name] = int64(len(j.ids)) + 1
	}
	return uint64(j.ids[name])
}

func number(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func (j *jax) put(row, name string, from, to float64, stats map[string]any) {
	e := number(nil, 1, j.id(name))
	e = number(e, 2, uint64(from*1e6))
	e = number(e, 3, uint64((to-from)*1e6))
	for k, v := range stats {
		s := number(nil, 1, j.id(k))
		switch v := v.(type) {
		case int64:
			s = number(s, 4, uint64(v))
		case string:
			s = text(s, 5, v)
		}
		e = text(e, 4, string(s))
	}
	j.rows[row] = append(j.rows[row], string(e))
}

// in is a range of the Python thread.
func (j *jax) in(name string, stats map[string]any, f func()) {
	from := j.now
	f()
	if j.frames || name[0] != '$' {
		j.put("python", name, from, j.now, stats)
	}
}

func (j *jax) busy(us float64) func() { return func() { j.now += j.vary(us, 0.08) } }

// place puts an activity on a stream after the call that was made now.
func (j *jax) place(stream, name string, us float64, stats map[string]any) {
	from := math.Max(j.now+6, j.streams[stream]+1)
	j.streams[stream] = from + us
	stats["correlation_id"] = j.corr
	j.put(stream, name, from, from+us, stats)
}

const compute, toDevice = "Stream #7(Compute)", "Stream #13(MemcpyH2D)"

func (j *jax) launch(kernel, scope string, us float64) {
	j.corr++
	j.in("cuLaunchKernel", map[string]any{"correlation_id": j.corr}, j.busy(4))
	j.place(compute, kernel, us, map[string]any{
		"hlo_op": kernel, "hlo_module": "jit_train_step", "tf_op": "jit(train_step)/" + scope,
		"kernel_details": "regs:128 static_shared:0 dynamic_shared:49152 grid:1056,1,1 block:256,1,1 occ_pct:50",
	})
}

// step dispatches a jitted step of n kernels; of four, one is a transposition if moved.
func (j *jax) step(n int, us float64, moved bool) {
	names := [4]string{"gemm_fusion_dot", "loop_add_fusion", "input_reduce_fusion", "gemm_fusion_dot_1"}
	if moved {
		names[1], names[2] = "loop_transpose_fusion", "input_transpose_fusion"
	}
	j.in("PjitFunction(train_step)", nil, func() {
		for i := range n {
			j.launch(names[i%4], fmt.Sprintf("layer%d/dot_general", i/4), j.vary(us, 0.02))
		}
	})
}

func (j *jax) wait() {
	j.in("$array.py:631 block_until_ready", nil, func() {
		j.in("PjRtBuffer::Await", nil, func() { j.now = math.Max(j.now, j.streams[compute]) + 8 })
	})
}

func (j *jax) file() []byte {
	plane := func(name string, stats map[string]uint64, rows func(string) bool) string {
		p := text(nil, 2, name)
		for _, row := range slices.Sorted(maps.Keys(j.rows)) {
			if !rows(row) {
				continue
			}
			l := text(number(nil, 1, j.id(row)), 2, row)
			for _, e := range j.rows[row] {
				l = text(l, 4, e)
			}
			p = text(p, 3, string(l))
		}
		for k := range stats {
			j.id(k)
		}
		for name, id := range j.ids { // in any order, as maps of protobuf
			entry := string(text(number(nil, 1, uint64(id)), 2, string(text(number(nil, 1, uint64(id)), 2, name))))
			p = text(text(p, 4, entry), 5, entry)
		}
		for k, v := range stats {
			p = text(p, 6, string(number(number(nil, 1, j.id(k)), 3, v)))
		}
		return string(p)
	}
	host := func(row string) bool { return row == "python" }
	b := text(nil, 1, plane("/host:CPU", nil, host))
	b = text(b, 1, plane("/device:GPU:0", map[string]uint64{
		"core_count": 132, "clock_rate": 1_980_000, "compute_cap_major": 9, "memory_bandwidth": 3_350_000_000_000,
		"memory_size": 85_018_279_936,
	}, func(row string) bool { return !host(row) }))
	const start = 1_790_000_000_000_000_000
	return text(b, 1, plane("Task Environment", map[string]uint64{
		"profile_start_time": start, "profile_stop_time": start + uint64(j.now+1e4)*1000,
	}, func(string) bool { return false }))
}

// jaxKinds are programs with one cause. In the third variant, the Python tracer is off: the finding
// that is right then is the second one if there is one.
var jaxKinds = []struct {
	name        string
	right, bare []string
	each        func(j *jax, i int)
}{
	{"the loader decodes in the main thread", []string{"loader"}, []string{"host_work"}, func(j *jax, _ int) {
		j.in("$data_loader.py:412 __next__", nil, func() { j.in("$image.py:88 decode_jpeg", nil, j.busy(48_000)) })
		j.step(120, 250, false)
	}},
	{"batches are augmented with NumPy", []string{"host_work"}, nil, func(j *jax, _ int) {
		j.in("$augment.py:57 random_crop_batch", nil, j.busy(52_000))
		j.step(120, 250, false)
	}},
	{"shapes change and the step is compiled again", []string{"compilation"}, nil, func(j *jax, _ int) {
		j.in("PjitFunction(train_step)", nil, func() {
			j.in("$pjit.py:1800 _pjit_call_impl_python", nil, func() {
				j.in("$compiler.py:380 backend_compile_and_load", nil, func() {
					j.in("backend_compile", nil, j.busy(90_000))
				})
			})
		})
		j.step(120, 250, false)
	}},
	{"the loss is read and logged in each step", []string{"synchronization", "host_work"}, nil, func(j *jax, _ int) {
		j.step(120, 250, false)
		j.wait()
		j.in("$metrics.py:40 write_scalars", nil, j.busy(14_000))
	}},
	{"the model is not jitted", []string{"launch_bound"}, nil, func(j *jax, _ int) {
		for i := range 500 {
			j.in("PjitFunction(multiply)", nil, func() {
				j.now += j.vary(32, 0.2)
				j.launch("wrapped_multiply", fmt.Sprintf("mul%d", i%7), j.vary(7, 0.05))
			})
		}
	}},
	{"batches are copied from pageable memory", []string{"exposed_copies", "pageable_copies"}, nil, func(j *jax, _ int) {
		j.corr++
		j.in("cuMemcpyHtoDAsync_v2", map[string]any{"correlation_id": j.corr}, j.busy(10))
		j.streams[toDevice] = math.Max(j.streams[toDevice], j.streams[compute])
		j.place(toDevice, "MemcpyH2D", j.vary(18_000, 0.03), map[string]any{
			"memcpy_details": "kind_src:pageable kind_dst:device size:144000000 dest:0 async:1",
		})
		j.streams[compute] = j.streams[toDevice]
		j.step(120, 250, false)
	}},
	{"gradients are reduced after the backward pass", []string{"exposed_communication"}, nil, func(j *jax, _ int) {
		j.step(120, 250, false)
		j.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "all_reduce", j.vary(14_000, 0.02))
	}},
	{"a checkpoint is written in every fourth step", []string{"checkpoint"}, []string{"host_work", "uneven_steps"}, checkpoints},
	{"layouts are transposed", []string{"data_movement"}, nil, func(j *jax, _ int) { j.step(120, 250, true) }},
	{"the device is always busy", []string{"healthy", "not_judged"}, nil, func(j *jax, _ int) {
		j.in("$data_loader.py:412 __next__", nil, j.busy(800))
		j.step(120, 250, false)
	}},
}

func checkpoints(j *jax, i int) {
	j.step(120, 250, false)
	if i%4 == 3 {
		j.wait()
		j.in("$checkpointer.py:210 save", nil, func() { j.in("$serialization.py:95 write_arrays", nil, j.busy(160_000)) })
	}
}

func TestJAX(t *testing.T) {
	if os.Getenv("OTELGPU_INTEGRATION") == "" {
		t.Skip("OTELGPU_INTEGRATION reads 30 files")
	}
	for i, k := range jaxKinds {
		for v := range variants {
			name := fmt.Sprintf("jax_%s_%d", slug(k.name), v)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				j := newJAX(uint64(7000+i*variants+v), v < 2)
				for step := range 8 + 2*v {
					j.in("train", map[string]any{"step_num": int64(step)}, func() { k.each(j, step) })
				}
				j.wait()
				path := filepath.Join(t.TempDir(), "host.xplane.pb")
				require.NoError(t, os.WriteFile(path, j.file(), 0o600))
				st, err := xplanereceiver.ReadFile(t.Context(), path, profiletrace.Options{Detail: kinetoreceiver.DetailSteps, Paths: true},
					func(context.Context, ptrace.Traces) error { return nil })
				require.NoError(t, err)
				right := k.right
				if v == 2 && k.bare != nil {
					right = k.bare
				}
				require.Len(t, st.Devices, 1)
				expect(t, name, right, st.Devices[0].Findings[0].Kind)
			})
		}
	}
}

func expect(t *testing.T, name string, right []string, said string) {
	if want, ok := missed[name]; ok {
		assert.Equal(t, want, said, "a known miss: remove it from the list if it is right now")
		return
	}
	assert.Contains(t, right, said)
}

// Four hosts with one device each, in one folder. In two of three, the input of one host is late.
func TestJAXRanks(t *testing.T) {
	if os.Getenv("OTELGPU_INTEGRATION") == "" {
		t.Skip("OTELGPU_INTEGRATION reads 60 files")
	}
	for v := range 15 {
		delay := [3]float64{0, 6000, 12_000}[v%3]
		t.Run(fmt.Sprintf("jax_ranks_%d", v), func(t *testing.T) {
			t.Parallel()
			late, dir := v/3%4, t.TempDir()
			var hosts [4]*jax
			for r := range hosts {
				hosts[r] = newJAX(uint64(9000+10*v+r), true)
			}
			for step := range 10 {
				ready := 0.0
				var began [4]float64
				for r, j := range hosts {
					began[r] = j.now
					wait := 2000.0
					if r == late {
						wait += delay
					}
					j.in("$data_loader.py:412 __next__", nil, j.busy(wait))
					j.step(120, 250, false)
					ready = math.Max(ready, math.Max(j.streams[compute]+1, j.now+10))
				}
				for _, j := range hosts {
					from := math.Max(j.streams[compute]+1, j.now+10)
					j.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "all_reduce", math.Max(ready-from, 0)+j.vary(3000, 0.01))
					j.wait()
				}
				for r, j := range hosts {
					j.put("python", "train", began[r], j.now, map[string]any{"step_num": int64(step)})
				}
			}
			var paths []string
			for r, j := range hosts {
				paths = append(paths, filepath.Join(dir, fmt.Sprintf("host-%d.xplane.pb", r)))
				require.NoError(t, os.WriteFile(paths[r], j.file(), 0o600))
			}
			var ranks jobs.Profiles
			for _, path := range paths {
				st, err := xplanereceiver.ReadFile(t.Context(), path, profiletrace.Options{
					Detail: kinetoreceiver.DetailSteps, Paths: true,
					Observe: func(in *link.Input) link.Observer {
						if o := ranks.Observe(path, in); o != nil {
							return o
						}
						return link.Observers{}
					},
				}, func(context.Context, ptrace.Traces) error { return nil })
				require.NoError(t, err)
				ranks.Judged(path, st.Devices)
			}
			require.Len(t, ranks.Jobs(), 1)
			job, said := ranks.Jobs()[0], "none"
			if f := job.Findings(); len(f) > 0 {
				said = f[0].Kind
			}
			if delay == 0 {
				assert.NotEqual(t, "late_rank", said, job.Says)
				return
			}
			assert.Equal(t, "late_rank", said, job.Says)
			assert.Regexp(t, fmt.Sprintf(`rank %d\b`, late), job.Says)
		})
	}
}
