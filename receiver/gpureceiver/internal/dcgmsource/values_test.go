// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

func TestValuesAreInBaseUnits(t *testing.T) {
	m := machine{"gpus": 1, "gpm": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	for q, want := range map[gpuquantity.Quantity]float64{
		gpuquantity.ClockSM: 1.98e9, gpuquantity.ClockMemory: 2.619e9, gpuquantity.ClockVideo: 1.545e9,
		gpuquantity.Temperature: 45, gpuquantity.Power: 310, gpuquantity.Utilization: 0.97,
		gpuquantity.MemoryUsed: 40000 << 20, gpuquantity.MemoryLimit: 81559 << 20, gpuquantity.MemoryReserved: 551 << 20,
		gpuquantity.SMUtilization: 0.5, gpuquantity.SMOccupancy: 0.5, gpuquantity.TensorUtilization: 0.5, gpuquantity.DRAMUtilization: 0.5,
		gpuquantity.Throttle: 4, // sw_power_cap; idle is not throttling
	} {
		got := of(b, 0, q)
		require.Equal(t, 10, len(got), q.String())
		assert.InDelta(t, want, got[9].V, 1e-9*want, q.String())
		for i, v := range got {
			assert.InDelta(t, (baseTime+int64(i+1)*100_000)*1000, v.Time, reading, "each sample has its own time")
		}
	}
	energy := of(b, 0, gpuquantity.Energy)
	assert.InDelta(t, 310*0.9, energy[9].V-energy[0].V, 2e-3, "J, from mJ")
}

func TestPCIeIsACounterOfTheDeviceOrTheIntegralOfItsRate(t *testing.T) {
	for _, tc := range []struct {
		name        string
		unsupported string
	}{{"counter", "0"}, {"rate", "1091,1092"}} {
		t.Run(tc.name, func(t *testing.T) {
			m := machine{"gpus": 1, "gpm": 1, "now": baseTime, "unsupported": tc.unsupported}
			s := open(t, m, settings())
			read(t, s)
			m.advance(t, time.Second)
			first := of(read(t, s), 0, gpuquantity.PCIeTransmit)
			m.advance(t, 10*time.Second)
			last := of(read(t, s), 0, gpuquantity.PCIeTransmit)
			require.Equal(t, 100, len(last))
			assert.InDelta(t, 10e9, last[99].V-first[9].V, 1, "1 GB/s for 10 s")
			assert.Less(t, last[99].V, 12e9, "it begins at 0")
		})
	}
}

func TestBlanksOfEveryKindAreNoValues(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 3, "now": baseTime, "unsupported": "157,156,1611,310", "noperm": "150"}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	for _, q := range []gpuquantity.Quantity{gpuquantity.Energy, gpuquantity.ECCCorrected, gpuquantity.Temperature} {
		assert.Empty(t, of(b, 0, q), q.String())
	}
	power := of(b, 1, gpuquantity.Power)
	require.Equal(t, 10, len(power))
	assert.Equal(t, 300.0, power[0].V, "field 155 replaces 157")
	assert.Positive(t, b.Dropped[gpudata.DropBlank])
	for _, v := range b.Values {
		require.Less(t, v.V, 1e13)
	}
}

func TestTheFirstSampleOfAProfilingFieldIsBlank(t *testing.T) {
	m := machine{"gpus": 1, "gpm": 1, "now": baseTime}
	s := open(t, m, settings())
	b := read(t, s)
	assert.Empty(t, of(b, 0, gpuquantity.SMUtilization))
	assert.Equal(t, 1, len(of(b, 0, gpuquantity.Temperature)))
}

// TestBlankBoundaries tests the detection of blank values at its limits, by type.
func TestBlankBoundaries(t *testing.T) {
	for _, tc := range []struct {
		v  rawValue
		ok bool
	}{
		{rawValue{typ: 'i', i: 0x7fffffffffffffef}, true},
		{rawValue{typ: 'i', i: 0x7ffffffffffffff0}, false},
		{rawValue{typ: 'i', i: 0x7ffffffffffffff3}, false},
		{rawValue{typ: 'i', i: -1}, true},
		{rawValue{typ: 'd', f: 140737488355327}, true},
		{rawValue{typ: 'd', f: 140737488355328}, false},
		{rawValue{typ: 'd', f: 140737488355331}, false},
		{rawValue{typ: 'd', f: math.NaN()}, false},
		{rawValue{typ: 'b'}, false},
		{rawValue{typ: 's', s: "7"}, false},
	} {
		_, ok := tc.v.number()
		assert.Equal(t, tc.ok, ok, "%+v", tc.v)
	}
	for _, s := range []string{"<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>", ""} {
		_, ok := (&rawValue{typ: 's', s: s}).text()
		assert.False(t, ok, s)
	}
}

// TestNoSampleIsLostOrRepeated reads about a million samples at each of three intervals, in reads
// of random length.
func TestNoSampleIsLostOrRepeated(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(every.String(), func(t *testing.T) {
			m := machine{"gpus": 2, "now": baseTime}
			set := settings()
			set.Sampling, set.Slow, set.KeepAge = every, 1000*time.Hour, 10*time.Hour
			s := open(t, m, set)
			read(t, s)
			const perRead = 1000
			total := int64(1_000_000)
			if testing.Short() {
				total = 50_000
			}
			readings := [2]int64{}
			var samples int64
			for i := int64(0); samples < total; i++ {
				m.advance(t, every*time.Duration(perRead/2+(i*7919)%perRead)+time.Duration(i%3)*every/3)
				b := read(t, s)
				for _, v := range b.Values {
					if v.Quantity != gpuquantity.Power {
						samples++
						continue
					}
					readings[v.Device]++
					require.InDelta(t, baseTime*1000+readings[v.Device]*int64(every), v.Time, reading)
					samples++
				}
			}
			assert.Equal(t, readings[0], readings[1])
		})
	}
}

func TestAnXIDIsCountedOnce(t *testing.T) {
	xid := func(after time.Duration, code int) string {
		return fmt.Sprintf("%d:0:%d", baseTime+after.Microseconds(), code)
	}
	m := machine{"gpus": 1, "now": baseTime, "xid": []string{xid(-10*time.Second, 13)}}
	s := open(t, m, settings())
	b := read(t, s)
	assert.Empty(t, b.Events, "it happened before anybody counted")
	assert.Zero(t, of(b, 0, gpuquantity.XIDs)[0].V)

	m["xid"] = []string{xid(-10*time.Second, 13), xid(1*time.Second, 79), xid(2*time.Second, 79)}
	m.advance(t, 5*time.Second)
	b = read(t, s)
	require.Len(t, b.Events, 2, "two equal numbers are two events")
	assert.Equal(t, (baseTime+1_000_000)*1000, b.Events[0].Time)
	assert.Equal(t, int64(79), b.Events[0].Code)
	assert.Equal(t, 2.0, of(b, 0, gpuquantity.XIDs)[0].V)

	m["xid"] = append(m["xid"].([]string), xid(3*time.Second, 31)) // from the kernel log, late
	m.advance(t, 5*time.Second)
	b = read(t, s)
	require.Len(t, b.Events, 1)
	assert.Equal(t, int64(31), b.Events[0].Code)

	require.NoError(t, s.Close())
	m.advance(t, time.Second)
	require.NoError(t, s.Open())
	assert.Empty(t, read(t, s).Events, "a new session does not count them again")
}

func TestInstancesHaveTheirOwnRatiosAndTheBoardItsCounters(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 3, "mig": 2, "now": baseTime}
	s := open(t, m, settings())
	require.Len(t, s.Devices(), 4)
	d := s.Devices()[3]
	assert.Equal(t, "MIG-00000000-0000-0000-0000-000000000031", d.ID)
	assert.Equal(t, s.Devices()[0].ID, d.Parent)
	assert.Equal(t, "gpu0:8/0", d.Name)
	assert.Equal(t, devicesamples.MIG{Profile: "1g.10gb", SMs: 17, Slices: 1, AllSlices: 8}, d.MIG)
	assert.Equal(t, int64(9984)<<20, d.Limits.Memory)
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	for q, want := range map[gpuquantity.Quantity]float64{
		gpuquantity.Utilization: 0.25, gpuquantity.SMUtilization: 0.25, gpuquantity.DRAMUtilization: 0.25, gpuquantity.MemoryUsed: 1000 << 20,
	} {
		got := of(b, 3, q)
		require.Equal(t, 10, len(got), q.String())
		assert.Equal(t, want, got[9].V, q.String())
	}
	assert.Empty(t, of(b, 3, gpuquantity.Energy))
	assert.Empty(t, of(b, 3, gpuquantity.Power))
	assert.Equal(t, 10, len(of(b, 0, gpuquantity.Energy)))

	m["mig"] = 1 // removed while running
	m.advance(t, time.Second)
	b = read(t, s)
	assert.True(t, b.Changed)
	assert.Len(t, s.Devices(), 3)
}

func TestValuesThatAreNotSampledAnyMoreAreStale(t *testing.T) {
	for _, tc := range []struct {
		age   time.Duration
		stale bool
	}{{59 * time.Second, false}, {61 * time.Second, true}} {
		m := machine{"gpus": 2, "now": baseTime}
		set := settings()
		set.Slow, set.MaxStaleness = 10*time.Second, time.Minute
		s := open(t, m, set)
		read(t, s)
		w := s.session.watches[1]
		require.Equal(t, latest, w.kind)
		b := &gpudata.Batch{}
		newest := baseTime + (1000 * time.Second).Microseconds()
		s.session.api = latestAt{s.session.api, []rawValue{
			{entity: entity{entityGPU, 0}, field: 150, typ: typeInt, i: 40, ts: newest},
			{entity: entity{entityGPU, 1}, field: 150, typ: typeInt, i: 41, ts: newest - tc.age.Microseconds()},
		}}
		require.NoError(t, s.session.readLatest(b, w, time.UnixMicro(newest)))
		s.session.api = s.api
		assert.Len(t, of(b, 0, gpuquantity.Temperature), 1)
		assert.Equal(t, tc.stale, len(of(b, 1, gpuquantity.Temperature)) == 0, tc.age)
		assert.Equal(t, tc.stale, b.Dropped[gpudata.DropStale] == 1, tc.age)
		require.NoError(t, s.Close())
		require.NoError(t, s.Open())
	}
}

// latestAt returns these as the newest values.
type latestAt struct {
	api
	values []rawValue
}

func (l latestAt) latest(_, _ uintptr, fn func(*rawValue)) error {
	for i := range l.values {
		fn(&l.values[i])
	}
	return nil
}
