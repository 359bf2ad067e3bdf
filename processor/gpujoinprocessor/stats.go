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

	faults    [faults]metric.MeasurementOption
	outcomes  [outcomes]metric.MeasurementOption
	noSamples metric.MeasurementOption
	uncertain metric.MeasurementOption
	ahead     metric.MeasurementOption
	tooLarge  metric.MeasurementOption
	reasons   [reasons]metric.MeasurementOption
	losses    [losses]metric.MeasurementOption
	refusals  [refusals]metric.MeasurementOption
}

func newStats(set component.TelemetrySettings, e *engine) (*stats, error) {
	tb, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, err
	}
	s := &stats{tb: tb, noSamples: sharedcomponent.Label("reason", "no_samples")}
	s.uncertain = sharedcomponent.Label("reason", "energy_uncertain")
	s.ahead = sharedcomponent.Label("reason", "clock_ahead")
	s.tooLarge = sharedcomponent.Label("reason", "too_large")
	for i, n := range faultNames {
		s.faults[i] = sharedcomponent.Label("reason", n)
	}
	for i, n := range outcomeNames {
		s.outcomes[i] = sharedcomponent.Label("reason", n)
	}
	for i, n := range reasonNames {
		s.reasons[i] = sharedcomponent.Label("reason", n)
	}
	for i, n := range lossNames {
		s.losses[i] = sharedcomponent.Label("reason", n)
	}
	for i, n := range refusalNames {
		s.refusals[i] = sharedcomponent.Label("reason", n)
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
		sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinBadSpans, k, s.faults[i])
	}
	s.unplaced(ctx, b)
}

// unplaced counts the spans of a batch whose device is not found, by the reason.
func (s *stats) unplaced(ctx context.Context, b *batch) {
	for i, k := range b.unplaced {
		sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUncoveredSpans, k, s.outcomes[i])
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
		s.tb.ProcessorGpuJoinReleasedSpans.Add(ctx, int64(b.waiting), s.reasons[t.reason])
		s.tb.ProcessorGpuJoinHoldDuration.Record(ctx, t.hold)
	}
	if t.passes {
		s.unplaced(ctx, b)
	}
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinLateSpans, t.late, nil)
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUncoveredSpans, t.uncovered, s.noSamples)
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUncoveredSpans, t.uncertain, s.uncertain)
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUncoveredSpans, t.ahead, s.ahead)
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinUntrackedSpans, t.untracked, nil)
	sharedcomponent.Count(ctx, s.tb.ProcessorGpuJoinRepeatedSpans, t.repeated, nil)
}

// lost counts a batch that was accepted and is dropped.
func (s *stats) lost(ctx context.Context, b *batch, spans int, why lossReason) {
	s.held.Add(int64(-b.waiting))
	s.tb.ProcessorGpuJoinLostSpans.Add(ctx, int64(spans), s.losses[why])
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
