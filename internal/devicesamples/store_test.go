// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
)

func TestDevicesAreFoundByAnySpellingOfTheirIdentity(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-AbC-1", HostName: "n1", HostID: "h1", PCIBDF: "00000000:17:00.0"})
	r.register(Device{ID: "MIG-77", Parent: "GPU-abc-1", HostName: "n1", PCIBDF: "00000000:17:00.0"})
	v := r.store.Acquire()
	defer v.Release()
	for _, id := range []string{"GPU-AbC-1", "gpu-abc-1", "abc-1"} {
		d, ok := v.Lookup(id)
		require.True(t, ok, id)
		assert.Equal(t, "GPU-AbC-1", d.Device().ID)
	}
	for _, at := range [][2]string{{"n1", "0000:17:00.0"}, {"h1", "17:00.0"}, {"n1", "00000000:17:00.0"}} {
		d, ok := v.LookupPCI(at[0], at[1])
		require.True(t, ok, at)
		assert.Equal(t, "GPU-AbC-1", d.Device().ID, "an instance is not found by its board's address")
	}
	_, ok := v.LookupPCI("n2", "0000:17:00.0")
	assert.False(t, ok)
	_, ok = v.LookupPCI("", "0000:17:00.0")
	assert.False(t, ok)
	mig, ok := v.Lookup("77")
	require.True(t, ok)
	board, ok := mig.Board()
	require.True(t, ok)
	assert.Equal(t, "GPU-AbC-1", board.Device().ID)
	assert.Len(t, v.Devices(nil), 2)
}

func TestADeviceHasOneWriter(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	other := component.MustNewIDWithName("gpu", "other")
	_, err := r.store.Register(other, Device{ID: "gpu-A"})
	require.EqualError(t, err,
		`device "gpu-A" is already written by "gpu/test", refused for "gpu/other" (give each device one source)`)
	r.put(Power, 0, 1)
	r.w.Close()
	r.put(Power, time.Second, 1)
	w, err := r.store.Register(other, Device{ID: "GPU-a", Model: "new"})
	require.NoError(t, err)
	s := Sample{Time: t0 + 2*second}
	s.Set(Power, 3)
	w.Write([]Sample{s})
	r.view(func(d DeviceView) {
		assert.Equal(t, "new", d.Device().Model)
		assert.Len(t, d.Times(Power, t0, t0+10*second, nil), 2, "what was written after Close is not there")
	})
	again, err := r.store.Register(other, Device{ID: "GPU-a"})
	require.NoError(t, err)
	w.Close() // of the previous registration: the new one stays
	s.Time += second
	again.Write([]Sample{s})
	r.view(func(d DeviceView) { assert.Len(t, d.Times(Power, t0, t0+10*second, nil), 3) })
	_, err = r.store.Register(owner, Device{})
	require.EqualError(t, err, "device without an ID (hw.id) cannot be registered")
}

func TestOneLease(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	release, err := st.Lease(component.MustNewID("gpu_join"))
	require.NoError(t, err)
	_, err = st.Lease(component.MustNewIDWithName("gpu_join", "2"))
	require.ErrorContains(t, err, `already joined by "gpu_join", refused for "gpu_join/2"`)
	release()
	release()
	_, err = st.Lease(component.MustNewIDWithName("gpu_join", "2"))
	require.NoError(t, err)
}

func TestRingsAreBoundedInAgeAndBytes(t *testing.T) {
	cfg := NewDefaultConfig()
	cfg.MaxAge = 10 * time.Second
	r := newRig(t, cfg, Device{ID: "GPU-a"})
	for i := range 1000 {
		r.put(Power, time.Duration(i)*time.Second, 1)
	}
	r.view(func(d DeviceView) { assert.Len(t, d.Times(Power, 0, t0*2, nil), 11) })
	assert.Equal(t, int64(989), r.store.Stats.EvictedAge.Load())

	cfg.MaxAge, cfg.MaxBytes = time.Hour, 3*minPoints*pointSize
	r = newRig(t, cfg, Device{ID: "GPU-a"})
	for i := range 1000 {
		r.put(Power, time.Duration(i)*time.Second, 1)
		r.put(Energy, time.Duration(i)*time.Second, float64(i))
	}
	assert.LessOrEqual(t, r.store.bytes, cfg.MaxBytes)
	assert.Positive(t, r.store.Stats.EvictedBytes.Load())
	r.view(func(d DeviceView) {
		oldest, newest := d.Range(Power)
		assert.Equal(t, t0+999*second, newest)
		joules, coverage := d.Integral(Energy, oldest, newest)
		assert.InDelta(t, float64(newest-oldest)*1e-9*coverage, joules, 1e-6)
	})
}

// TestMemoryIsFlatOverADay writes a day of samples of eight devices at 1 Hz.
func TestMemoryIsFlatOverADay(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a", Interval: time.Second})
	var most int64
	for i := range 24 * 3600 {
		s := Sample{Time: t0 + int64(i)*second}
		s.Set(Power, float64(i%700))
		s.Set(Energy, float64(i))
		r.w.Write([]Sample{s})
		if i == 3600 {
			most = r.store.bytes
		}
	}
	assert.Equal(t, most, r.store.bytes)
	assert.LessOrEqual(t, most, int64(512*(2*pointSize+8)))
}

func TestInvalidSamplesAreDroppedAndCounted(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	r.put(Power, 10*time.Second, 1)
	r.put(Power, 10*time.Second, 2)
	r.put(Power, 9*time.Second, 3)
	r.put(Power, 25*time.Hour, 4) // an hour ahead of the clock
	r.view(func(d DeviceView) { assert.Equal(t, []int64{t0 + 10*second}, d.Times(Power, 0, 2*t0, nil)) })
	assert.Equal(t, int64(1), r.store.Stats.Duplicate.Load())
	assert.Equal(t, int64(1), r.store.Stats.OutOfOrder.Load())
	assert.Equal(t, int64(1), r.store.Stats.Future.Load())
}

func TestAClockThatIsSetBackRestartsTheSeries(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	r.now = time.Unix(0, t0)
	r.put(Power, 0, 1)
	r.put(Power, 30*time.Second, 1) // the clock ran ahead
	r.now = time.Unix(0, t0).Add(2 * time.Second)
	r.put(Power, 2*time.Second, 5)
	r.view(func(d DeviceView) {
		assert.Equal(t, []int64{t0 + 2*second}, d.Times(Power, 0, 2*t0, nil))
		assert.Equal(t, t0+2*second, d.Newest())
	})
}

func TestEventsAreBoundedSortedAndNotRepeated(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	r.w.WriteEvents([]Event{
		{Time: 30, Kind: EventXID, Code: 79},
		{Time: 10, Kind: EventXID, Code: 13},
		{Time: 30, Kind: EventXID, Code: 79},
		{Time: 30, Kind: EventXID, Code: 31},
	})
	r.view(func(d DeviceView) {
		e := d.Events(10, 30, nil)
		require.Len(t, e, 3)
		assert.Equal(t, int64(13), e[0].Code)
		assert.Empty(t, d.Events(11, 29, nil))
	})
	for i := range 3 * maxEvents {
		r.w.WriteEvents([]Event{{Time: int64(100 + i), Kind: EventXID, Code: 1}})
	}
	r.view(func(d DeviceView) {
		e := d.Events(0, 1e9, nil)
		require.Len(t, e, maxEvents)
		assert.Equal(t, int64(100+2*maxEvents), e[0].Time, "the oldest was removed")
		assert.Equal(t, int64(100+3*maxEvents-1), e[maxEvents-1].Time)
	})
	r.w.WriteEvents([]Event{{Time: 99, Kind: EventXID, Code: 1}, {Time: 101 + 2*maxEvents, Kind: EventXID, Code: 2}})
	r.view(func(d DeviceView) {
		e := d.Events(0, 1e9, nil)
		require.Len(t, e, maxEvents)
		assert.Equal(t, int64(101+2*maxEvents), e[0].Time)
		assert.Equal(t, int64(2), e[1].Code, "a late event is inserted in order")
	})
}

func TestDevicesWithoutAWriterAreForgotten(t *testing.T) {
	cfg := NewDefaultConfig()
	cfg.MaxDevices = 2
	r := newRig(t, cfg, Device{ID: "GPU-a", HostName: "n", PCIBDF: "0000:01:00.0"})
	r.put(Power, 0, 1)
	r.w.Close()
	r.register(Device{ID: "GPU-b"})
	r.register(Device{ID: "GPU-c"}) // sweeps
	_, err := r.store.Register(owner, Device{ID: "GPU-d"})
	require.EqualError(t, err, "cannot register device \"GPU-d\": `max_devices` (2) reached")
	v := r.store.Acquire()
	_, ok := v.Lookup("GPU-a")
	assert.False(t, ok)
	_, ok = v.LookupPCI("n", "0000:01:00.0")
	assert.False(t, ok)
	v.Release()
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	assert.Zero(t, r.store.bytes)
}

func TestSamplesOfARefusedDeviceAreCounted(t *testing.T) {
	cfg := NewDefaultConfig()
	cfg.MaxDevices = 1
	r := newRig(t, cfg, Device{ID: "GPU-a"})
	sample := Sample{Time: t0}
	sample.Set(Power, 100)
	sample.Set(Temperature, 50)
	for i, refused := range []Device{{ID: "GPU-b"}, {ID: "GPU-a"}, {}} {
		w, err := r.store.Register(component.MustNewIDWithName("gpu", "other"), refused)
		require.Error(t, err)
		require.NotNil(t, w)
		w.Write([]Sample{sample})
		w.WriteEvents([]Event{{Time: t0, Kind: EventXID, Count: 1}})
		w.Close()
		require.EqualValues(t, 2*(i+1), r.store.Stats.NotRegistered.Load())
	}
	require.Zero(t, r.store.Stats.Written.Load())
	r.put(Power, 0, 1)
	require.EqualValues(t, 1, r.store.Stats.Written.Load(), "the device's own writer goes on")
}

func TestReadersAndWritersTogether(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	wake, cancel := st.Subscribe()
	defer cancel()
	var wg sync.WaitGroup
	base := time.Now().UnixNano()
	for g := range 4 {
		id := string(rune('a' + g))
		w, err := st.Register(owner, Device{ID: "GPU-" + id})
		require.NoError(t, err)
		wg.Go(func() {
			for i := range 2000 {
				s := Sample{Time: base + int64(i)*1000}
				s.Set(Energy, float64(i))
				w.Write([]Sample{s})
			}
		})
		wg.Go(func() {
			for range 500 {
				v := st.Acquire()
				if d, ok := v.Lookup(id); ok {
					joules, coverage := d.Integral(Energy, base, base+2000*1000)
					assert.GreaterOrEqual(t, coverage, 0.0)
					assert.LessOrEqual(t, joules, 2000.0)
				}
				v.Release()
			}
		})
	}
	wg.Wait()
	select {
	case <-wake:
	default:
		t.Error("writing wakes the subscriber")
	}
}

// The address of a replaced board belongs to its successor, also after the old board is evicted.
func TestTheAddressOfAReplacedBoardIsItsSuccessors(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a", HostName: "n", HostID: "h", PCIBDF: "0000:01:00.0"})
	r.put(Power, 0, 1)
	r.w.Close()
	r.store.mu.Lock()
	b := &device{desc: Device{ID: "GPU-b", HostName: "n", HostID: "h", PCIBDF: "0000:01:00.0"}, open: true}
	r.store.devices[NormalizeID("GPU-b")] = b
	r.store.index(b)
	r.store.sweep(r.store.now().Add(1000 * time.Hour))
	r.store.mu.Unlock()
	v := r.store.Acquire()
	defer v.Release()
	_, ok := v.Lookup("GPU-a")
	require.False(t, ok)
	for _, host := range []string{"n", "h"} {
		d, ok := v.LookupPCI(host, "0000:01:00.0")
		require.True(t, ok)
		assert.Equal(t, "GPU-b", d.Device().ID)
	}
}
