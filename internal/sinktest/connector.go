// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sinktest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/connector/xconnector"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Connector runs a connector with consumers that accept everything and then with others, which
// share, change and reject data at random, until the shutdown and through it, and with requests
// that arrive repeatedly, as behind a fan-out. All outputs of the others are the same in the end,
// and nothing arrived twice. feed returns the connector's input in each of three rounds; its spans
// are moved in time so that the last ends now.
func Connector(
	t *testing.T, f connector.Factory, configure func() component.Config, feed func(round byte) []ptrace.Traces,
) {
	want := run(t, f, configure(), feed, false, func() *Sink { return new(Sink) })
	outputs := len(want.metrics.last) + len(want.spans.accepted) + len(want.profiles.accepted)
	require.NotZero(t, outputs, "the feed has an output")
	seed, rejected := uint64(0), 0
	for range 4 {
		for _, kind := range []string{"", "shares", "changes", "repeats"} {
			seed++
			t.Run(fmt.Sprintf("%d/%s", seed, kind), func(t *testing.T) {
				got := run(t, f, configure(), feed, kind == "repeats", func() *Sink {
					return &Sink{Shares: kind == "shares", Changes: kind == "changes", Reject: Randomly(seed, 0.5, 0)}
				})
				assert.Equal(t, want.metrics.last, got.metrics.last)
				assert.Equal(t, want.spans.accepted, got.spans.accepted)
				assert.Equal(t, want.profiles.accepted, got.profiles.accepted)
				for _, s := range []*Sink{got.spans, got.metrics, got.profiles} {
					for id, contents := range s.contents {
						assert.Len(t, contents, 1, "%s was sent with different contents", id)
					}
					assert.Empty(t, s.twice, "items that were changed twice")
				}
				rejected += got.metrics.Rejected() + got.spans.Rejected() + got.profiles.Rejected()
			})
		}
	}
	assert.NotZero(t, rejected)
	t.Run("the next component hangs", func(t *testing.T) { hang(t, f, configure(), feed) })
}

type outputs struct{ spans, metrics, profiles *Sink }

func run(
	t *testing.T, f connector.Factory, cfg component.Config, feed func(round byte) []ptrace.Traces, repeats bool,
	sink func() *Sink,
) outputs {
	out := outputs{sink(), sink(), sink()}
	synctest.Test(t, func(t *testing.T) {
		all := out.connectors(t, f, cfg)
		for round := range byte(3) {
			input := feed(round)
			endNow(input)
			for i, td := range input {
				td.MarkReadOnly()
				for _, c := range all {
					require.NoError(t, c.ConsumeTraces(t.Context(), td))
					if repeats {
						require.NoError(t, c.ConsumeTraces(t.Context(), td))
						require.NoError(t, c.ConsumeTraces(t.Context(), input[i/2]))
					}
				}
			}
			time.Sleep(2 * time.Minute)
		}
		for _, c := range all {
			require.NoError(t, c.Shutdown(context.Background()))
		}
	})
	return out
}

// connectors returns a started connector for each output.
func (out *outputs) connectors(t *testing.T, f connector.Factory, cfg component.Config) (all []connector.Traces) {
	set := connectortest.NewNopSettings(f.Type())
	add := func(c connector.Traces, err error) {
		require.NoError(t, err)
		require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
		all = append(all, c)
	}
	if f.TracesToMetricsStability() != component.StabilityLevelUndefined {
		add(f.CreateTracesToMetrics(t.Context(), set, cfg, out.metrics))
	}
	if f.TracesToTracesStability() != component.StabilityLevelUndefined {
		add(f.CreateTracesToTraces(t.Context(), set, cfg, out.spans))
	}
	if x, ok := f.(xconnector.Factory); ok && x.TracesToProfilesStability() != component.StabilityLevelUndefined {
		add(x.CreateTracesToProfiles(t.Context(), set, cfg, out.profiles))
	}
	return all
}

// hang checks that a shutdown ends although the next components do not return and do not respect
// the context.
func hang(t *testing.T, f connector.Factory, cfg component.Config, feed func(round byte) []ptrace.Traces) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sink := func() *Sink {
			return &Sink{Wait: func(context.Context) error {
				<-release
				return nil
			}}
		}
		out := outputs{sink(), sink(), sink()}
		all := out.connectors(t, f, cfg)
		input := feed(0)
		endNow(input)
		for _, td := range input {
			for _, c := range all {
				require.NoError(t, c.ConsumeTraces(t.Context(), td))
			}
		}
		start := time.Now()
		var errs error
		for _, c := range all {
			errs = errors.Join(errs, c.Shutdown(context.Background()))
		}
		assert.ErrorContains(t, errs, "not stopped in time")
		assert.LessOrEqual(t, time.Since(start), time.Minute)
		close(release)
	})
}

// endNow moves spans in time so that the last ends now.
func endNow(input []ptrace.Traces) {
	last := pcommon.Timestamp(0)
	each := func(do func(ptrace.Span)) {
		for _, td := range input {
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						do(s)
					}
				}
			}
		}
	}
	each(func(s ptrace.Span) { last = max(last, s.EndTimestamp()) })
	shift := pcommon.NewTimestampFromTime(time.Now()) - last
	each(func(s ptrace.Span) {
		s.SetStartTimestamp(s.StartTimestamp() + shift)
		s.SetEndTimestamp(s.EndTimestamp() + shift)
	})
}
