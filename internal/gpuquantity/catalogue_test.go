// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuquantity

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/semconv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryRowIsComplete(t *testing.T) {
	names, fields := map[string]bool{}, map[uint16]bool{}
	points := map[[2]string]bool{}
	for _, q := range All() {
		x := q.Info()
		require.NotEmpty(t, x.Name, "quantity %d", q)
		assert.False(t, names[x.Name], "%s occurs twice", x.Name)
		names[x.Name] = true
		assert.Less(t, x.Domain.Least, x.Domain.Most, x.Name)
		assert.Equal(t, x.Kind == Counter, x.Domain.PerSecond > 0, "%s: only counters grow", x.Name)
		for i, f := range x.DCGM {
			assert.Equal(t, f.Pace == Unread, f.ID == 0, x.Name)
			assert.False(t, f.ID != 0 && fields[f.ID], "field %d occurs twice", f.ID)
			fields[f.ID] = true
			assert.True(t, i == 0 || f.ID == 0 || f.Rank > x.DCGM[i-1].Rank, "%s: fields are listed by rank", x.Name)
			assert.False(t, q.HasRing() && f.Pace == Slow, "%s would delay the join", x.Name)
		}
		if m := &x.Metric; m.Name != "" {
			registered, ok := m.Registered()
			assert.True(t, ok, "%s is not in the registry", m.Name)
			assert.Equal(t, x.Kind == Counter, registered.Instrument == semconv.InstrumentCounter, x.Name)
			assert.Equal(t, m.Key == "", m.Value == "", x.Name)
			assert.False(t, points[[2]string{m.Name, m.Value}], "%s %s occurs twice", m.Name, m.Value)
			points[[2]string{m.Name, m.Value}] = true
		}
		if x.Span.Key != "" {
			_, ok := semconv.LookupAttribute(string(x.Span.Key))
			assert.True(t, ok, "%s is not in the registry", x.Span.Key)
		}
		assert.False(t, (x.Span.Key != "" || x.Chart) && !q.HasRing(), "%s has no ring", x.Name)
		back, ok := ByName(x.Name)
		assert.True(t, ok && back == q, x.Name)
	}
	_, ok := ByName("no such quantity")
	assert.False(t, ok)
	assert.Equal(t, "unknown", Quantity(Num).String())
}

func TestValuesOutsideADomainAreInvalid(t *testing.T) {
	for q, limits := range map[Quantity][4]float64{ // invalid, valid, valid, invalid
		EncoderUtilization: {-0.01, 0, 1.05, 1.06},
		PipeInt:            {-0.01, 0, 1.05, 1.06},
		MemoryLimit:        {-1, 0, 1 << 50, 1<<50 + 1},
		PCIeReplays:        {-1, 0, 1e18, math.Inf(1)},
		XIDs:               {-1, 0, 1e6, math.NaN()},
	} {
		for i, want := range []bool{false, true, true, false} {
			assert.Equal(t, want, q.Valid(limits[i]), "%s %g", q, limits[i])
		}
	}
}
