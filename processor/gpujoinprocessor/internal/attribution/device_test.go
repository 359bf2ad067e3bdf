// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

func TestShare(t *testing.T) {
	type op struct {
		settle int
		span   attribution.Span
	}
	arrive := func(id, parent, process, start, end int) op { return op{span: span(id, parent, process, start, end)} }
	settle := func(to int) op { return op{settle: to} }
	for name, tt := range map[string]struct {
		ops  []op
		want map[int]float64
		late map[int]int64
	}{
		"two processes share equally": {
			ops:  []op{arrive(1, 0, 1, 0, 10), arrive(2, 0, 2, 0, 10), settle(10)},
			want: map[int]float64{1: 5, 2: 5},
		},
		"a process that idles inside an open step takes nothing from a neighbour that works": {
			// Process 1 has a step with one section; process 2 one section. The step itself is
			// innermost in [4, 10).
			ops: []op{
				arrive(1, 0, 1, 0, 10), arrive(2, 1, 1, 0, 4), arrive(3, 0, 2, 0, 10), settle(10),
			},
			want: map[int]float64{1: 5, 2: 2, 3: 5},
		},
		"three streams of one process beside one stream of another": {
			ops: []op{
				arrive(1, 0, 1, 0, 12), arrive(2, 0, 1, 0, 12), arrive(3, 0, 1, 0, 12), arrive(4, 0, 2, 0, 12), settle(12),
			},
			want: map[int]float64{1: 2, 2: 2, 3: 2, 4: 6},
		},
		"a step after its children": {
			ops:  []op{arrive(2, 1, 1, 0, 4), arrive(3, 1, 1, 6, 10), settle(11), arrive(1, 0, 1, 0, 10)},
			want: map[int]float64{1: 10, 2: 4, 3: 4}, late: map[int]int64{1: 2},
		},
		"a step after its children, of which one is still open": {
			ops: []op{
				arrive(2, 1, 1, 0, 4), arrive(3, 1, 1, 6, 10), settle(8), arrive(1, 0, 1, 0, 12), settle(20),
			},
			want: map[int]float64{1: 12, 2: 4, 3: 4}, late: map[int]int64{1: 2},
		},
		"a step whose children came and which takes nothing of a neighbour": {
			ops: []op{
				arrive(2, 1, 1, 0, 4), arrive(9, 0, 2, 0, 10), settle(10), arrive(1, 0, 1, 0, 10),
			},
			want: map[int]float64{1: 2, 2: 2, 9: 8}, late: map[int]int64{1: 6},
		},
		"a long span after the short ones inside it": {
			ops: []op{
				arrive(5, 0, 1, 0, 1), arrive(2, 0, 1, 2, 3), arrive(3, 0, 1, 5, 6), settle(20), arrive(1, 0, 2, 0, 8),
				arrive(4, 0, 2, 0, 9),
			},
			want: map[int]float64{1: 5, 2: 1, 3: 1, 4: 1}, late: map[int]int64{1: 8, 4: 9},
		},
		"a span before the first one that was seen": {
			ops:  []op{arrive(1, 0, 1, 5, 10), settle(20), arrive(2, 0, 2, 1, 7)},
			want: map[int]float64{1: 5, 2: 4}, late: map[int]int64{2: 6},
		},
		"grandchildren before the middle before the top": {
			ops: []op{
				arrive(3, 2, 1, 0, 4), settle(5), arrive(2, 1, 1, 0, 5), settle(8), arrive(1, 0, 1, 0, 8),
			},
			want: map[int]float64{1: 8, 2: 5, 3: 4}, late: map[int]int64{1: 3, 2: 1},
		},
		"an active grandchild before the middle before the top": {
			ops: []op{
				arrive(3, 2, 1, 4, 12), settle(8), arrive(2, 1, 1, 2, 10), arrive(1, 0, 1, 0, 14), settle(20),
			},
			want: map[int]float64{1: 14, 2: 10, 3: 8}, late: map[int]int64{1: 2, 2: 2},
		},
		"equal timestamps": {
			ops: []op{
				arrive(1, 0, 1, 0, 5), arrive(2, 0, 1, 5, 10), arrive(3, 2, 1, 5, 10), arrive(4, 0, 1, 5, 10), settle(5),
				settle(10),
			},
			want: map[int]float64{1: 5, 2: 2.5, 3: 2.5, 4: 2.5},
		},
		"a child that outlasts its parent": {
			ops:  []op{arrive(1, 0, 1, 0, 5), arrive(2, 1, 1, 0, 8), settle(10)},
			want: map[int]float64{1: 8, 2: 8},
		},
		"a child of another process": {
			ops:  []op{arrive(1, 0, 1, 0, 10), arrive(2, 1, 2, 2, 8), settle(10)},
			want: map[int]float64{1: 10, 2: 6},
		},
		"a circle of parents": {
			ops:  []op{arrive(1, 2, 1, 0, 10), arrive(2, 1, 1, 0, 10), arrive(3, 3, 1, 0, 10), settle(10)},
			want: map[int]float64{1: 5, 2: 5, 3: 5}, // 1 is below 2; the reverse relation is rejected
		},
		"the same span twice": {
			ops:  []op{arrive(1, 0, 1, 0, 10), arrive(1, 0, 1, 0, 10), settle(10), arrive(1, 0, 1, 0, 10)},
			want: map[int]float64{1: 10},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, g := newDevice(), flat()
			for _, o := range tt.ops {
				if o.settle > 0 {
					d.Settle(int64(o.settle)*cellNS, g)
				} else {
					require.NotEqual(t, attribution.Refused, take(d, o.span, g))
				}
			}
			for id, want := range tt.want {
				got, ok := share(d, id)
				require.True(t, ok)
				assert.InDelta(t, want, got.Value, 1e-12, "span %d", id)
				assert.Equal(t, tt.late[id]*cellNS, got.Late, "late of span %d", id)
			}
		})
	}
}

// A chain has at most 129 spans, then a new one starts, whether parents arrive before or after
// their children.
func TestChainsOfParentsAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		arrive    func(i int) int
		innermost []int
	}{
		"parents first":  {func(i int) int { return i }, []int{129, 258, 300}},
		"children first": {func(i int) int { return 301 - i }, []int{42, 171, 300}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &attribution.Budget{Max: 1 << 20}
			d, g := attribution.New(attribution.Limits{Remember: 10 * cellNS}, b), flat()
			for i := 1; i <= 300; i++ {
				id := tt.arrive(i)
				take(d, span(id, id-1, 1, 0, 9), g)
			}
			d.Settle(9*cellNS, g)
			var innermost []int
			for id := 1; id <= 300; id++ {
				s, ok := share(d, id)
				require.True(t, ok)
				assert.InDelta(t, 3, s.Value, 1e-12)
				if s.Own > 0 {
					innermost = append(innermost, id)
				}
			}
			assert.Equal(t, tt.innermost, innermost)
			for at := 10; at < 5000 && b.Used() > 0; at += 10 { // parents after their children
				d.Settle(int64(at)*cellNS, g)
			}
			assert.Zero(t, b.Used())
		})
	}
}

func TestParentIsKeptWhileAChildIsPending(t *testing.T) {
	d := attribution.New(attribution.Limits{Remember: 10 * cellNS}, &attribution.Budget{Max: 1 << 20})
	g := flat()
	take(d, span(1, 0, 1, 0, 2), g)
	take(d, span(2, 1, 1, 0, 2), g)
	take(d, span(3, 2, 1, 0, 90), g) // outlasts both by far
	for at := 1; at < 90; at++ {
		take(d, span(1000+at, 0, 1, at, at+1), g) // would reuse the slots of evicted ones
		d.Settle(int64(at)*cellNS, g)
	}
	d.Settle(91*cellNS, g)
	got := shares(t, d, 1, 2, 3)
	assert.InDeltaSlice(t, []float64{got[2], got[2], 1 + 89./2}, got, 1e-9)
}

func TestElsewhereSumsSpansBelowOnOtherDevices(t *testing.T) {
	d, g := attribution.New(attribution.Limits{Remember: 10 * cellNS}, &attribution.Budget{Max: 100}), flat()
	d.Add(span(2, 1, 1, 0, 4), 0, g)
	d.Add(span(3, 2, 1, 1, 2), 0, g)
	d.Settle(6*cellNS, g)
	for id, want := range map[int]float64{1: 4, 2: 0, 9: 0} { // 2 belongs to this device, 9 is unknown
		assert.InDelta(t, want, d.OnOtherDevices(key(id)), 1e-12, "span %d", id)
	}
	for at := 10; at < 100; at += 10 {
		d.Settle(int64(at)*cellNS, g)
	}
	assert.Zero(t, d.Totals().Orphans, "another device has the parent")
}

func TestPassMovesChildrenThroughAHostSpan(t *testing.T) {
	d, g := newDevice(), flat()
	d.Add(span(3, 2, 1, 0, 4), 0, g) // kernel below host span 2 below step 1
	d.Settle(2*cellNS, g)
	d.Pass(key(2), spanID(1))
	d.Settle(5*cellNS, g)
	d.Pass(key(2), spanID(1)) // the batch again
	d.Add(span(1, 0, 1, 0, 6), 0, g)
	d.Settle(6*cellNS, g)
	assert.InDeltaSlice(t, []float64{4, 6}, shares(t, d, 3, 1), 1e-12)
}

func TestMarkedSpansWithoutIDOrLengthAreRefused(t *testing.T) {
	d, g := newDevice(), flat()
	assert.Equal(t, attribution.Refused, take(d, span(0, 0, 1, 0, 4), g))
	assert.Equal(t, attribution.Refused, take(d, span(1, 0, 1, 4, 4), g))
	assert.Equal(t, attribution.Refused, take(d, span(1, 0, 1, 5, 4), g))
	_, ok := d.Share(key(1), attribution.Handle{})
	assert.False(t, ok)
}

func TestUnknownFlowLeavesSpansUncovered(t *testing.T) {
	d, g := newDevice(), flat()
	for i := 4; i < 8; i++ {
		g.flow[i], g.known[i] = 0, false
	}
	d.Add(span(1, 0, 1, 4, 8), 0, g)
	d.Add(span(2, 0, 2, 2, 6), 0, g)
	d.Settle(10*cellNS, g)
	s, _ := share(d, 1)
	assert.Zero(t, s.Covered)
	s, _ = share(d, 2)
	assert.EqualValues(t, 2*cellNS, s.Covered)
	assert.InDelta(t, 2, s.Value, 1e-12)
}

func TestSumsHoldOverMonthsWithoutIdleTime(t *testing.T) {
	d := attribution.New(attribution.Limits{}, &attribution.Budget{Max: 1 << 20})
	// 700 W for three months are 5e9 J; with plain additions the last span would be off by 1e-6.
	const step = int64(1e9)
	m := rate{0.7e-6} // per ns
	d.Add(attribution.Span{Key: key(1), Process: 1, End: 1 << 60}, 0, m)
	for at := range int64(1000) {
		d.Settle((at+1)*7776*step, m)
	}
	at := int64(1000) * 7776 * step
	d.Add(attribution.Span{Key: key(2), Process: 1, Start: at, End: at + 1_000_000}, 0, m)
	d.Settle(at+2_000_000, m)
	assert.InEpsilon(t, 0.35, shares(t, d, 2)[0], 1e-12)
}
