// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gpucapturereceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/capturetest"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/metadata"
)

// program is a simulated process: what it does in a second outside windows, and what a window truly
// costs it.
type program struct {
	launches, pushes float64       // per second
	launch           time.Duration // how much longer a launch takes in a window
	stall            time.Duration // while a window opens
}

// simulate opens windows for an hour, and returns the share of it that they truly cost and their
// number.
func (p program) simulate(s *pace, now *time.Time, length time.Duration, pushed *float64) (share float64, windows int) {
	begin, lost := *now, 0.0
	for now.Sub(begin) < time.Hour {
		slow := 1 + p.launches*p.launch.Seconds()
		ran := max(length-p.stall, 0).Seconds() / slow // in time outside windows
		lost += length.Seconds() - ran
		c := cost{begin: *now, end: now.Add(length), records: int64(p.launches * ran), before: uint64(*pushed)}
		*pushed += p.pushes * ran
		c.after = uint64(*pushed)
		interval, _ := s.next(c)
		*pushed += p.pushes * (interval - length).Seconds()
		*now = now.Add(interval)
		windows++
	}
	return lost / now.Sub(begin).Seconds(), windows
}

func TestWindowsCostAtMostTheirLimit(t *testing.T) {
	const limit = 0.02
	light := program{launches: 1000, launch: 4700 * time.Nanosecond}
	for name, busy := range map[string]program{
		"launches of 10 µs on an H200":              {launches: 100_000, launch: 1900 * time.Nanosecond},
		"launches of 11 µs on an H100":              {launches: 90_000, launch: 4700 * time.Nanosecond},
		"few launches, but each window stalls":      {launches: 500, pushes: 1000, stall: 400 * time.Millisecond},
		"launches that cost more than elsewhere":    {launches: 50_000, pushes: 2000, launch: 12 * time.Microsecond},
		"everything in it waits for each window":    {launches: 500, pushes: 1000, stall: 900 * time.Millisecond},
		"a light program, of which nothing is lost": light,
	} {
		for _, every := range []time.Duration{2 * time.Second, 4 * time.Second, 10 * time.Second} {
			s, now, pushed := &pace{every: every, maxCost: limit}, time.Unix(1_700_000_000, 0), 0.0
			busy.simulate(s, &now, time.Second, &pushed) // it learns how often the program pushes
			share, windows := busy.simulate(s, &now, time.Second, &pushed)
			assert.LessOrEqual(t, share, limit*1.01, "%s, every %v", name, every)
			assert.GreaterOrEqual(t, windows, 72, "%s, every %v: a window in 50 s even if it costs all of its time", name, every)
			light.simulate(s, &now, time.Second, &pushed)
			_, windows = light.simulate(s, &now, time.Second, &pushed)
			assert.Equal(t, int(time.Hour/every), windows, "%s: it returns to every %v", name, every)
		}
	}
}

// The default settings cost less than the limit whatever a program does, so nothing is postponed.
func TestDefaultWindowsAreNeverPostponed(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	worst := program{launches: 1e6, pushes: 1e4, launch: time.Millisecond}
	s, now, pushed := &pace{every: cfg.Every, maxCost: cfg.MaxCost}, time.Unix(1_700_000_000, 0), 0.0
	share, windows := worst.simulate(s, &now, cfg.Window, &pushed)
	assert.Equal(t, 60, windows)
	assert.Less(t, share, cfg.MaxCost)
}

func TestAStoppedProcessIsNotTakenForACost(t *testing.T) {
	s, now := &pace{every: time.Minute, maxCost: 0.02}, time.Unix(1_700_000_000, 0)
	_, _ = s.next(cost{begin: now, end: now.Add(time.Second), records: 100, before: 0, after: 1000})
	now = now.Add(time.Minute)
	interval, lost := s.next(cost{begin: now, end: now.Add(10 * time.Second), before: 60_000, after: 60_000})
	assert.Equal(t, time.Minute, interval)
	assert.Zero(t, lost)
}

func TestPostponedWindowsAreLogged(t *testing.T) {
	dir := t.TempDir()
	set := receivertest.NewNopSettings(metadata.Type)
	core, logs := observer.New(zap.WarnLevel)
	set.Logger = zap.New(core)
	cfg := testConfig(dir, 50*time.Millisecond)
	cfg.Every, cfg.MaxCost = 50*time.Millisecond, 1e-6
	p := capturetest.Start(t, dir)
	r, err := newReceiver(set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool {
		p.Do("launch 10 k")
		return logs.FilterMessageSnippet("`max_cost`").Len() > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, r.Shutdown(t.Context()))
	fields := logs.FilterMessageSnippet("`max_cost`").All()[0].ContextMap()
	assert.GreaterOrEqual(t, fields["cost_of_a_window"], recordCost)
	assert.InEpsilon(t, float64(fields["cost_of_a_window"].(time.Duration))*1e6, float64(fields["interval"].(time.Duration)), 0.01)
}
