// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanid

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

// fixed is a source whose IDs are known.
type fixed struct{ trace, span byte }

func (f fixed) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	return trace.TraceID{f.trace}, trace.SpanID{f.span}
}

func (f fixed) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return trace.SpanID{f.span} }

func reserved(ids IDs) context.Context {
	return context.WithValue(context.Background(), ReservationKey{}, &Reservation{IDs: ids})
}

func TestAReservationServesOneSpan(t *testing.T) {
	g := New(fixed{1, 2})
	ctx := reserved(IDs{trace.TraceID{8}, trace.SpanID{9}})
	gotTrace, gotSpan := g.NewIDs(ctx)
	require.Equal(t, trace.TraceID{8}, gotTrace)
	require.Equal(t, trace.SpanID{9}, gotSpan)
	gotTrace, gotSpan = g.NewIDs(ctx)
	require.Equal(t, trace.TraceID{1}, gotTrace, "a second span of the context has its own IDs")
	require.Equal(t, trace.SpanID{2}, gotSpan)
}

func TestAReservationServesItsOwnTraceOnly(t *testing.T) {
	g := New(fixed{1, 2})
	ctx := reserved(IDs{trace.TraceID{8}, trace.SpanID{9}})
	require.Equal(t, trace.SpanID{2}, g.NewSpanID(ctx, trace.TraceID{7}))
	require.Equal(t, trace.SpanID{9}, g.NewSpanID(ctx, trace.TraceID{8}))
	require.Equal(t, trace.SpanID{2}, g.NewSpanID(ctx, trace.TraceID{8}))
}

func TestIDsFitWithinTheirTraceAndAsARoot(t *testing.T) {
	ids := IDs{trace.TraceID{8}, trace.SpanID{9}}
	in := func(id byte) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{id}, SpanID: trace.SpanID{1}})
	}
	require.True(t, ids.Fit(trace.SpanContext{}))
	require.True(t, ids.Fit(in(8)))
	require.False(t, ids.Fit(in(7)))
	require.False(t, (&IDs{}).Fit(trace.SpanContext{}), "none are reserved")
}

func TestRandomIDsAreValidAndDiffer(t *testing.T) {
	for _, g := range []*Generator{nil, New(nil)} {
		seen := map[trace.SpanID]bool{}
		for range 1000 {
			id, span := g.DrawIDs(context.Background())
			require.True(t, id.IsValid() && span.IsValid())
			seen[span], seen[g.DrawSpanID(context.Background(), id)] = true, true
		}
		require.Len(t, seen, 2000)
	}
}
