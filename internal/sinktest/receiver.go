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
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// Input is what a receiver receives in a run of Receiver.
type Input struct {
	Factory receiver.Factory
	// Config returns the configuration of a run. The input of all runs is the same.
	Config func() component.Config
	// Lasts is the time from the start of the receiver until it has received everything.
	Lasts time.Duration
	// Cumulative means that rejected points are not sent again, because later ones include them.
	Cumulative bool
}

// Receiver runs a receiver, in the simulated time of package synctest, with consumers that accept
// everything and then with others, which share, change and reject data at random. All receive the
// same. Data that was rejected permanently is missing, and the data after it is not. A shutdown ends
// although the next components reject everything or do not return.
func Receiver(t *testing.T, in Input) {
	want := in.run(t, func() *Sink { return new(Sink) })
	for i, level := range in.levels() {
		if level != component.StabilityLevelUndefined {
			require.NotEmpty(t, want[i].accepted, "the input has an output for each signal (%d)", i)
		}
	}
	for seed := range uint64(3) {
		for _, kind := range []string{"", "shares", "changes", "permanently"} {
			t.Run(fmt.Sprintf("%d/%s", seed, kind), func(t *testing.T) {
				permanent := 0.0
				if kind == "permanently" {
					permanent = 0.5
				}
				got := in.run(t, func() *Sink {
					return &Sink{Shares: kind == "shares", Changes: kind == "changes", Reject: Randomly(seed, 0.5, permanent)}
				})
				for i, s := range got {
					if in.Cumulative && i == 1 {
						if kind != "permanently" {
							assert.Equal(t, want[i].last, s.last)
						}
						continue
					}
					s.Check(t, len(want[i].accepted), false)
					for id := range want[i].accepted {
						assert.True(t, s.accepted[id] > 0 || s.permanent[id], "%s is missing", id)
					}
				}
			})
		}
	}
	for name, wait := range map[string]func(ctx context.Context, release <-chan struct{}) error{
		"rejects everything": func(context.Context, <-chan struct{}) error { return ErrRejected },
		"waits for the context": func(ctx context.Context, _ <-chan struct{}) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
		hangs: func(_ context.Context, release <-chan struct{}) error {
			<-release
			return nil
		},
	} {
		t.Run("the next component "+name, func(t *testing.T) { in.stops(t, name == hangs, wait) })
	}
}

const hangs = "hangs"

// sinks are the next components for spans, metrics and logs.
type sinks [3]*Sink

func (in *Input) levels() [3]component.StabilityLevel {
	f := in.Factory
	return [...]component.StabilityLevel{f.TracesStability(), f.MetricsStability(), f.LogsStability()}
}

// start returns the started receivers of all signals.
func (in *Input) start(t *testing.T, to sinks) (all []component.Component) {
	f, cfg := in.Factory, in.Config()
	set := receivertest.NewNopSettings(f.Type())
	set.ID = component.NewID(f.Type()) // otherwise random
	add := func(r component.Component, err error) {
		require.NoError(t, err)
		all = append(all, r)
	}
	for i, level := range in.levels() {
		switch {
		case level == component.StabilityLevelUndefined:
		case i == 0:
			add(f.CreateTraces(t.Context(), set, cfg, to[i]))
		case i == 1:
			add(f.CreateMetrics(t.Context(), set, cfg, to[i]))
		default:
			add(f.CreateLogs(t.Context(), set, cfg, to[i]))
		}
	}
	for _, r := range all {
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	}
	return all
}

func (in *Input) run(t *testing.T, sink func() *Sink) sinks {
	to := sinks{sink(), sink(), sink()}
	synctest.Test(t, func(t *testing.T) {
		all := in.start(t, to)
		time.Sleep(in.Lasts)
		for _, r := range all {
			require.NoError(t, r.Shutdown(context.Background()))
		}
	})
	return to
}

// stops checks that a shutdown ends, with an error if the next component hangs.
func (in *Input) stops(t *testing.T, hang bool, wait func(context.Context, <-chan struct{}) error) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sink := &Sink{Wait: func(ctx context.Context) error { return wait(ctx, release) }}
		all := in.start(t, sinks{sink, sink, sink})
		time.Sleep(in.Lasts)
		begin := time.Now()
		var errs error
		for _, r := range all {
			errs = errors.Join(errs, r.Shutdown(context.Background()))
		}
		assert.LessOrEqual(t, time.Since(begin), time.Minute)
		close(release)
		if hang {
			assert.ErrorContains(t, errs, "not stopped in time")
		} else {
			assert.NoError(t, errs)
		}
	})
}
