// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadLevelsAreTheReadings(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	for i, n := range []float64{1, 3, 2} {
		st.WriteLoad(LoadSeries{Service: "vllm", Source: "http://a/metrics{engine=0}"}, int64(100+10*i)*second, n)
	}
	st.WriteLoad(LoadSeries{Service: "vllm", Source: "http://a/metrics{engine=1}"}, 110*second, 5)
	st.WriteLoad(LoadSeries{Service: "vllm", Source: "http://a/metrics{engine=1}"}, 109*second, 9) // older than the newest: dropped
	st.WriteLoad(LoadSeries{Service: "vllm", Source: "http://a/metrics{engine=1}"}, 119*second, -1)
	name, ok := st.LoadOf("vllm")
	require.True(t, ok)
	assert.Equal(t, "vllm", name)
	_, ok = st.LoadOf("other")
	assert.False(t, ok)
	assert.Equal(t, []LoadLevel{
		{60 * second, LoadLapsed},
		{70 * second, LoadAhead},
		{100 * second, 6},
		{110 * second, 8},
		{120 * second, 7},
		{150 * second, LoadLapsed},
	}, st.LoadLevels("vllm", 60*second, 149*second, nil), "of a series without a reading, the larger one around")
	assert.Equal(t, []LoadLevel{{100 * second, 6}, {110 * second, 8}, {120 * second, 7}},
		st.LoadLevels("vllm", 105*second, 115*second, nil), "the one before and the one after, too")
	assert.True(t, st.LoadKnown("vllm", 75*second, 145*second))
	assert.True(t, st.LoadKnown("vllm", 101*second, 110*second))
	assert.False(t, st.LoadKnown("vllm", 101*second, 109*second), "no reading is inside")
	assert.False(t, st.LoadKnown("vllm", 60*second, 100*second))
	assert.False(t, st.LoadKnown("vllm", 100*second, 160*second))
	assert.EqualValues(t, 2, st.loads.dropped.Load())
	st.WriteLoad(LoadSeries{}, 100*second, 1)
	name, ok = st.LoadOf("other")
	assert.True(t, ok && name == "")
}

// A service's requests run on all its servers, so all counts are needed.
func TestLoadIsKnownIfEachServerWasRead(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	a, b := LoadSeries{"vllm", "http://a/metrics{engine=0}"}, LoadSeries{"vllm", "http://b/metrics{engine=0}"}
	for at := range int64(50) {
		st.WriteLoad(a, (100+at)*second, 1)
		if at < 10 {
			st.WriteLoad(b, (100+at)*second, 1)
		}
	}
	assert.True(t, st.LoadKnown("vllm", 100*second, 110*second))
	assert.True(t, st.LoadKnown("vllm", 105*second, 139*second), "its last reading is near enough")
	assert.False(t, st.LoadKnown("vllm", 105*second, 140*second), "one of two was not read")
	assert.False(t, st.LoadKnown("vllm", 120*second, 125*second))
	assert.True(t, st.LoadKnown("vllm", 140*second, 149*second), "there is only one left")

	st.MissLoad(LoadSeries{"vllm", "http://c/metrics"}, 145*second)
	st.MissLoad(LoadSeries{"vllm", "http://a/metrics"}, 145*second)
	st.MissLoad(LoadSeries{"other", "http://d/metrics"}, 149*second)
	assert.False(t, st.LoadKnown("vllm", 140*second, 149*second), "one of two can't be read")
	assert.True(t, st.LoadKnown("vllm", 146*second, 149*second))
}

// Readings more than a minute apart leave a gap.
func TestLoadIsNotKnownFarFromReadings(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	for _, at := range []int64{100, 200} {
		st.WriteLoad(LoadSeries{Service: "vllm"}, at*second, float64(at/100))
	}
	assert.Equal(t, []LoadLevel{
		{90 * second, LoadAhead},
		{100 * second, 1},
		{130 * second, LoadLapsed},
		{170 * second, LoadAhead},
		{200 * second, 2},
		{230 * second, LoadLapsed},
	}, st.LoadLevels("vllm", 90*second, 300*second, nil))
	assert.Equal(t, []LoadLevel{{100 * second, 1}, {130 * second, LoadLapsed}, {170 * second, LoadAhead}, {200 * second, 2}},
		st.LoadLevels("vllm", 140*second, 150*second, nil))
	assert.Equal(t, []LoadLevel{{200 * second, 2}, {230 * second, LoadLapsed}},
		st.LoadLevels("vllm", 240*second, 250*second, nil))
}

func TestLoadsAreBounded(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	for i := range maxLoadSeries + 10 {
		st.WriteLoad(LoadSeries{Source: fmt.Sprint(i)}, 100*second, 1)
	}
	assert.Equal(t, maxLoadSeries, st.loads.count)
	assert.EqualValues(t, 10, st.loads.dropped.Load())
	st.WriteLoad(LoadSeries{Service: "new"}, 10_000*second, 1)
	assert.Equal(t, 1, st.loads.count, "the others ended long ago")
	for i := range int64(10_000) {
		st.WriteLoad(LoadSeries{Service: "new"}, 10_000*second+i*1e6, 1)
	}
	assert.LessOrEqual(t, len(*st.loads.series["new"][""]), maxLoadReadings)
}
