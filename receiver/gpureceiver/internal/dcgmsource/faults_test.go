// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package dcgmsource

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

func TestALostBoardFailsAndTheOthersGoOn(t *testing.T) {
	m := machine{"gpus": 2, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["lost"] = 0b10
	m.advance(t, time.Second)
	b := read(t, s)
	assert.Equal(t, []gpudata.Health{gpudata.HealthOK, gpudata.HealthFailed}, b.Health)
	assert.Equal(t, 10, len(of(b, 0, gpudata.Power)))
	assert.Empty(t, of(b, 1, gpudata.Power))
}

func TestTheDriverIsDetachedAndAttached(t *testing.T) {
	m := machine{"gpus": 2, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["detached"] = 1
	m.advance(t, time.Second)
	b := read(t, s)
	assert.True(t, b.Changed)
	assert.Empty(t, s.Devices())
	m.advance(t, time.Second)
	b = read(t, s)
	assert.False(t, b.Changed)
	m["detached"] = 0
	m.advance(t, time.Second)
	b = read(t, s)
	assert.True(t, b.Changed)
	require.Len(t, s.Devices(), 2)
	m.advance(t, time.Second)
	assert.Equal(t, 10, len(of(read(t, s), 1, gpudata.Power)))
}

func TestTheHostEngineIsRestarted(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.set(t, "epoch", 2)
	err := s.Read(&gpudata.Batch{})
	require.ErrorContains(t, err, `DCGM at "localhost:5555": error getting entity count: Host engine connection invalid/disconnected`)
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	m.advance(t, time.Second)
	assert.NotEmpty(t, of(read(t, s), 0, gpudata.Power))
}

func TestTheHostEngineIsAbsentAndComes(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "down": 1}
	m.write(t)
	s := newSource(settings(), newConnection(library{}))
	for range 3 {
		require.EqualError(t, s.Open(), `cannot reach DCGM at "localhost:5555": error connecting to nv-hostengine: Host engine connection invalid/disconnected`)
	}
	m.set(t, "down", 0)
	require.NoError(t, s.Open())
	require.NoError(t, s.Close())
}

func TestAHungHostEngineAnswersLateAndLosesNothing(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.set(t, "hang", 1)
	done := make(chan *gpudata.Batch, 1)
	go func() {
		b := &gpudata.Batch{}
		assert.NoError(t, s.Read(b))
		done <- b
	}()
	select {
	case <-done:
		t.Fatal("the call blocks while the host engine hangs")
	case <-time.After(100 * time.Millisecond):
	}
	m["hang"] = 0
	m.advance(t, 70*time.Second)
	b := <-done
	b2 := read(t, s)
	assert.Equal(t, 700, len(of(b, 0, gpudata.Power))+len(of(b2, 0, gpudata.Power)), "70 s at 10 Hz")
}

func TestAHungHostEngineEndsInATimeout(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "hangms": 50}
	s := open(t, m, settings())
	read(t, s)
	m.set(t, "hang", 1)
	require.ErrorContains(t, s.Read(&gpudata.Batch{}), "Timeout")
	m.set(t, "hang", 0)
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
}

func TestConnectingToAHungHostEngineHoldsNobodyElse(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "hang": 1}
	m.write(t)
	conn := newConnection(library{})
	a, b := newSource(settings(), conn), newSource(settings(), conn)
	opened := make(chan error, 1)
	go func() { opened <- a.Open() }()
	require.Eventually(t, func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.busy != ""
	}, time.Minute, time.Millisecond)
	require.ErrorContains(t, b.Open(), "DCGM's library is still busy connecting to localhost:5555 since")
	m.set(t, "hang", 0)
	require.NoError(t, <-opened)
	require.NoError(t, a.Close())
}

func TestABacklogThatIsTooLargeIsGivenUpInPart(t *testing.T) {
	// The backlog is measured with this machine's clock.
	m := machine{"gpus": 2, "now": time.Now().Add(-100 * time.Second).UnixMicro()}
	s := open(t, m, settings())
	read(t, s)
	delete(m, "now")
	m.set(t, "limit", 5000) // 100 s are 1000 values of each of 8 fields of 2 boards
	now := time.Now()
	b := read(t, s)
	assert.Positive(t, b.Dropped[gpudata.DropOverrun])
	power := of(b, 0, gpudata.Power)
	assert.Greater(t, len(power), 100)
	assert.Less(t, now.Sub(time.Unix(0, power[len(power)-1].Time)), time.Second, "the newest are there")
}
