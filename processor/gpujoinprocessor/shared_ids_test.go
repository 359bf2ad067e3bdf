// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// Trainers seed the generator of IDs alike on all ranks, so that all ranks send spans with equal
// IDs. The device may be unknown when the first spans arrive, and without Slurm, NeMo Lens draws
// another job ID on each rank.
func TestProcessesWithEqualIDsHaveTheirOwnEnergy(t *testing.T) {
	for name, x := range map[string]struct {
		jobs map[string]string // by process
		late bool              // the device is found after the first spans
	}{
		"ranks":                       {jobs: map[string]string{"a": "job", "b": "job"}},
		"forked workers":              {},
		"ranks, late device":          {jobs: map[string]string{"a": "job", "b": "job"}, late: true},
		"ranks of jobs, late device":  {jobs: map[string]string{"a": "job", "b": "other"}, late: true},
		"forked workers, late device": {late: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				zero, r := time.Now(), newRig(t)
				r.logger = zap.New(core)
				r.join()
				defer r.close()
				device := func() {
					w := r.device(nominal)
					for at := zero; at.Before(time.Now()); at = at.Add(100 * time.Millisecond) {
						w.Write(one(at, zero))
					}
					r.run(w, steady(zero, 300))
				}
				if !x.late {
					device()
				}
				at := func(x float64) time.Time { return zero.Add(sec(x)) }
				time.Sleep(2 * time.Second)
				// A step of 2 s with a section of 1 s in each process: a's is [1, 3] and b's [2,
				// 4], at 300 W. Sections are sent before their steps.
				joules := map[string]map[uint64]float64{}
				for _, process := range []string{"a", "b"} {
					joules[process] = map[uint64]float64{}
				}
				send := func(process string, id, parent uint64, start, end float64) {
					td := newTraces(process)
					if x.jobs != nil {
						td.rs.Resource().Attributes().PutStr("gpu.job.id", x.jobs[process])
						td.rs.Resource().Attributes().PutInt("gpu.job.rank", int64(process[0]-'a'))
					}
					td.gpu(id, parent, at(start), at(end)).Attributes().PutStr("hw.id", gpu0)
					r.consume(td.Traces)
				}
				send("a", 12, 10, 1, 2)
				send("b", 12, 10, 3, 4)
				time.Sleep(2 * time.Second)
				if x.late {
					device()
				}
				send("a", 10, 0, 1, 3)
				send("b", 10, 0, 2, 4)
				time.Sleep(8 * time.Second)
				for _, td := range r.sink.AllTraces() {
					for _, rs := range td.ResourceSpans().All() {
						process, _ := rs.Resource().Attributes().Get("service.instance.id")
						for _, s := range rs.ScopeSpans().At(0).Spans().All() {
							joules[process.Str()][uint64(s.SpanID()[7])] = energy(t, s)
						}
					}
				}
				want := map[uint64]float64{12: 300, 10: 450} // from 2 to 3 each of them has half of the device
				for process, found := range joules {
					assert.InDeltaMapValues(t, want, found, 1e-6, process)
				}
				_, err := r.tel.GetMetric("otelcol_processor_gpu_join_untracked_spans")
				require.Error(t, err, "none was counted")
				said := logs.FilterMessageSnippet("otelgpu.ids.UniqueIds()").All()
				require.Len(t, said, 1)
			})
		})
	}
}

func TestRanksWithEqualIDsOnTwoDevicesShareNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		d := nominal
		d.ID = gpu1
		r.run(r.device(d), steady(zero, 100))
		send := func(rank int64, id, parent uint64, start, end float64, device string) {
			td := newTraces(string(rune('a' + rank)))
			td.rs.Resource().Attributes().PutStr("gpu.job.id", "job")
			td.rs.Resource().Attributes().PutInt("gpu.job.rank", rank)
			td.gpu(id, parent, zero.Add(sec(start)), zero.Add(sec(end))).Attributes().PutStr("hw.id", device)
			r.consume(td.Traces)
		}
		// The second rank's section waits for its step while the first rank's step, which has the
		// same ID, is released.
		time.Sleep(3 * time.Second)
		send(0, 12, 10, 1, 2, gpu0)
		send(1, 12, 10, 1.5, 2.5, gpu1)
		send(0, 10, 0, 1, 3, gpu0)
		time.Sleep(8 * time.Second)
		send(1, 10, 0, 1, 11, gpu1)
		time.Sleep(8 * time.Second)
		var found []float64
		for _, td := range r.sink.AllTraces() {
			for s := range spansOf(td) {
				found = append(found, energy(t, s))
			}
		}
		assert.InDeltaSlice(t, []float64{300, 100, 600, 1000}, found, 1e-6)
	})
}

// The recorded ranks draw the same IDs for all of their spans.
func TestRanksOfARecordingWithEqualIDsAllHaveEnergy(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(recorded.Path(t, "cases", "services"), "ranks-equal-ids.otlp.jsonl"))
	require.NoError(t, err)
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		d := nominal
		d.ID = "GPU-10000000-0000-0000-0000-000000000000"
		r.run(r.device(d), steady(zero, 500))
		shift := time.Duration(0)
		for line := range bytes.Lines(data) {
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
			require.NoError(t, err)
			var last time.Time
			for s := range spansOf(td) {
				if shift == 0 {
					shift = zero.Add(time.Second).Sub(s.StartTimestamp().AsTime())
				}
				s.SetStartTimestamp(pcommon.NewTimestampFromTime(s.StartTimestamp().AsTime().Add(shift)))
				s.SetEndTimestamp(pcommon.NewTimestampFromTime(s.EndTimestamp().AsTime().Add(shift)))
				if end := s.EndTimestamp().AsTime(); end.After(last) {
					last = end
				}
			}
			time.Sleep(time.Until(last))
			r.consume(td)
		}
		time.Sleep(8 * time.Second)
		require.Equal(t, 240, r.sink.SpanCount())
		steps := 0.
		for _, td := range r.sink.AllTraces() {
			for s := range spansOf(td) {
				if joules := energy(t, s); s.ParentSpanID().IsEmpty() {
					steps += joules
				}
			}
		}
		assert.InDelta(t, r.energy("attributed"), steps, 1e-3, "the steps have the energy of their collectives")
	})
}
