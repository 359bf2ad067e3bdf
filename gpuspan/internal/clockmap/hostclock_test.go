// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHostClockFollowsStepsOfTheWallClockOnly(t *testing.T) {
	p := newPhysics(1, time.Minute, 0, 0)
	c := newHostClock(func() time.Time { return p.time(0) })
	unix := c.unix
	p.wallSteps = []wallAge{{10e9, 1e9}, {20e9, 1e9 + 3000}, {30e9, -5e9}}
	for at := 0.0; at < 40e9; at += 1e9 {
		c.observe([]time.Time{p.time(at), p.time(at + 100)})
	}
	require.Equal(t, 2, c.n, "3 µs are noise")
	require.Equal(t, unix+5e9, c.wall(unix+5e9))
	require.Equal(t, unix+15e9+1e9, c.wall(unix+15e9))
	require.Equal(t, unix+35e9-5e9, c.wall(unix+35e9))
}

func TestHostClockForgetsTheOldestSteps(t *testing.T) {
	p := newPhysics(1, time.Minute, 0, 0)
	c := newHostClock(func() time.Time { return p.time(0) })
	for i := range int64(20) {
		p.wallSteps = append(p.wallSteps, wallAge{i * 1e9, i * 1e6})
	}
	for at := 0.0; at < 20e9; at += 1e9 {
		c.observe([]time.Time{p.time(at)})
	}
	require.Equal(t, c.unix+2e9+12e6, c.wall(c.unix+2e9)) // the oldest of 8 remembered
	require.Equal(t, c.unix+19e9+19e6, c.wall(c.unix+19e9))
}

func TestSuspensionBetweenTheTwoReadsIsNotAStep(t *testing.T) {
	p := newPhysics(1, time.Minute, 0, 0)
	c := newHostClock(func() time.Time { return p.time(0) })
	p.wallSteps = []wallAge{{1e9, -1e6}, {1e9 + 50, 0}}
	c.observe([]time.Time{p.time(1e9), p.time(1e9 + 100)})
	require.Zero(t, c.n)
}

func TestBaseIsTheBestOfAFewReadings(t *testing.T) {
	p := newPhysics(1, time.Minute, 0, 0)
	p.wallSteps = []wallAge{{0, -15e3}, {100, 0}, {300, -3e3}} // the first two readings and the last ones were interrupted
	at := 0.0
	c := newHostClock(func() time.Time { at += 60; return p.time(at) })
	require.Equal(t, p.base.UnixNano()+1e9, c.wall(c.axis(p.base.Add(1e9))))
}
