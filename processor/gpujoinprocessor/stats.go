// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/metadata"
)

// stats are the processor's own metrics.
type stats struct {
	tb   *metadata.TelemetryBuilder
	held atomic.Int64

	reasons map[string]metric.MeasurementOption // by the attribute reason
}

func newStats(set component.TelemetrySettings, e *engine) (*stats, error) {
	tb, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, err
	}
	s := &stats{tb: tb, reasons: map[string]metric.MeasurementOption{}}
	for _, names := range [][]string{
		faultNames[:], outcomeNames[:], reasonNames[:], lossNames[:], refusalNames[:],
		{"no_samples", "energy_uncertain", "clock_ahead", "too_large"},
	} {
		for _, n := range names {
			s.reasons[n] = sharedcomponent.Label("reason", n)
		}
	}
	err = tb.RegisterProcessorGpuJoinHeldSpansCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(max(0, s.held.Load()))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, tb.RegisterProcessorGpuJoinKnownSpansCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(int64(e.known()))
		return nil
	})
}

func (s *stats) shutdown() { s.tb.Shutdown() }

// accepted counts the GPU spans of an accepted request which will never have samples.
func (s *stats) accepted(ctx context.Context, b *batch) {
	var bad [faults]int64
	for i := range b.spans {
		if g := &b.spans[i]; g.fault != sound {
			bad[g.fault]++
		}
	}
	for i, k := range bad {
		sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinBadSpans, k, s.reasons[faultNames[i]])
	}
	s.unplaced(ctx, b)
}

// unplaced counts the spans of a batch whose device is not found, by the reason.
func (s *stats) unplaced(ctx context.Context, b *batch) {
	for i, k := range b.unplaced {
		sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUncoveredSpans, k, s.reasons[outcomeNames[i]])
	}
}

// tally is what is counted of a batch when the next component has accepted it.
type tally struct {
	late, uncovered, uncertain, ahead, untracked, repeated int64

	reason releaseReason
	hold   float64 // seconds from the latest end to the release
	passes bool    // devices are not found after it was queued
}

func (t *tally) released(why releaseReason, b *batch, now time.Time) {
	t.reason, t.hold = why, max(0, now.Sub(time.Unix(0, b.latest)).Seconds())
}

// delivered counts a batch that the next component has accepted.
func (s *stats) delivered(ctx context.Context, b *batch) {
	t := &b.tally
	if b.waiting > 0 {
		s.held.Add(int64(-b.waiting))
		s.tb.ProcessorGpuJoinReleasedSpans.Add(ctx, int64(b.waiting), s.reasons[reasonNames[t.reason]])
		s.tb.ProcessorGpuJoinHoldDuration.Record(ctx, t.hold)
	}
	if t.passes {
		s.unplaced(ctx, b)
	}
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinLateSpans, t.late, nil)
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUncoveredSpans, t.uncovered, s.reasons["no_samples"])
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUncoveredSpans, t.uncertain, s.reasons["energy_uncertain"])
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUncoveredSpans, t.ahead, s.reasons["clock_ahead"])
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUntrackedSpans, t.untracked, nil)
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinRepeatedSpans, t.repeated, nil)
}

// lost counts a batch that was accepted and is dropped.
func (s *stats) lost(ctx context.Context, b *batch, spans int, why lossReason) {
	s.held.Add(int64(-b.waiting))
	s.tb.ProcessorGpuJoinLostSpans.Add(ctx, int64(spans), s.reasons[lossNames[why]])
}

// energy reports the outcomes of a board's energy since the last report.
func (s *stats) energy(b *board) {
	ctx := context.Background()
	more, orphans := b.energy.take(b)
	for i, joules := range more {
		s.tb.ProcessorGpuJoinEnergy.Add(ctx, joules, b.energy.states[i])
	}
	if b.energy.withheld > 0 {
		s.tb.ProcessorGpuJoinWithheldEnergy.Add(ctx, b.energy.withheld, b.energy.device)
		b.energy.withheld = 0
	}
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinOrphans, orphans, nil)
}
