// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stacks_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/stacks"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// x is an event whose number, if any, connects a call with what it launches.
func x(kind event.Kind, name string, start, length, number int64) (event.Event, string) {
	e := event.Event{Kind: kind, Start: start, Duration: length, Correlation: number, Process: 1, Thread: 1}
	if kind.Device() {
		e.Thread, e.Stream = 0, 7
	}
	return e, name
}

type profile struct{ *profiletrace.Profile }

func (p profile) add(e event.Event, name string) profile {
	e.Name = p.Names.ID(name)
	if err := p.Add(&e); err != nil {
		panic(err)
	}
	return p
}

// record adds a profile of a service to a total.
func record(t *testing.T, total *stackprofile.Total, fill func(profile)) {
	t.Helper()
	var seen *stacks.Recorder
	p := profile{profiletrace.New(profiletrace.Options{Observe: func(in *link.Input) link.Observer {
		seen = stacks.New(in)
		return seen
	}}, profiletrace.Source{Root: "profile", Service: "service"})}
	defer p.Close()
	p.Meta.Base = 1e18
	fill(p)
	_, err := p.Emit(t.Context(), func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	seen.AddTo(total)
}

// times returns the time and the idle time by stack.
func times(total *stackprofile.Total) map[string][2]float64 {
	list := map[string][2]float64{}
	for _, p := range total.Profiles() {
		for _, s := range p.Samples() {
			var names []string
			for _, f := range s.Stack.Frames(nil) {
				names = append(names, f.Name)
			}
			list[strings.Join(names, ";")] = [2]float64{s.Values[stackprofile.Time], s.Values[stackprofile.IdleTime]}
		}
	}
	return list
}

func TestActivitiesAreBelowTheRangesAroundTheirLaunches(t *testing.T) {
	total := stackprofile.NewTotal()
	record(t, total, func(p profile) {
		step := func(n, at int64) {
			e, name := x(event.KindStep, "train#"+string(rune('0'+n)), at, 100, 0)
			e.Detail.Step, e.Detail.HasStep = n, true
			p.add(e, name)
		}
		step(1, 1000)
		p.add(x(event.KindAnnotation, "forward", 1010, 50, 0))
		p.add(x(event.KindFrame, "model.py(3): call", 1011, 48, 0))
		p.add(x(event.KindModule, "nn.Module: Linear_3", 1012, 40, 0))
		p.add(x(event.KindOperator, "aten::mm", 1020, 10, 0))
		p.add(x(event.KindRuntime, "cudaLaunchKernel", 1021, 2, 1))
		step(2, 2000)
		p.add(x(event.KindOperator, "aten::copy_", 2020, 10, 0))
		p.add(x(event.KindRuntime, "cudaMemcpyAsync", 2021, 2, 2))
		p.add(x(event.KindOperator, "aten::add", 3000, 10, 0))
		p.add(x(event.KindRuntime, "cudaLaunchKernel", 3001, 2, 3))
		p.add(x(event.KindKernel, "void gemm<float>(int)", 1100, 500, 1))
		e, name := x(event.KindCopy, "Memcpy HtoD", 2050, 20, 2)
		e.Detail.HostMemory = "pageable"
		p.add(e, name)
		p.add(x(event.KindKernel, "add", 3050, 30, 3))
		p.add(x(event.KindMemset, "Memset", 3100, 7, 9))
	})
	const mm = "service;train;forward;nn.Module: Linear;aten::mm;gemm"
	assert.Equal(t, map[string][2]float64{
		mm: {500, 0},
		"service;train;aten::copy_;Memcpy HtoD (pageable)":                      {20, 0},
		"service;train;aten::copy_;Memcpy HtoD (pageable);idle (launched late)": {0, 450},
		"service;profile;aten::add;add":                                         {30, 0},
		"service;profile;aten::add;add;idle (launched late)":                    {0, 980},
		"service;profile;Memset":                                                {7, 0},
		"service;profile;Memset;idle (cause unknown)":                           {0, 20},
	}, times(total))
}

// The backward pass runs on a thread without ranges around it, while the thread that began it
// waits.
func TestTheBackwardPassIsBelowTheRangeThatWaits(t *testing.T) {
	total := stackprofile.NewTotal()
	record(t, total, func(p profile) {
		p.add(x(event.KindStep, "train#1", 1000, 900, 0))
		p.add(x(event.KindAnnotation, "backward", 1100, 700, 0))
		for _, r := range []struct {
			kind event.Kind
			name string
		}{{event.KindOperator, "autograd::engine::evaluate_function: MmBackward0"}, {event.KindRuntime, "cudaLaunchKernel"}} {
			e, name := x(r.kind, r.name, 1200, 100, 0)
			e.Thread = 2
			if r.kind == event.KindRuntime {
				e.Correlation = 1
			}
			p.add(e, name)
		}
		p.add(x(event.KindKernel, "gemm", 1400, 50, 1))
	})
	assert.Equal(t, map[string][2]float64{
		"service;train;backward;autograd::engine::evaluate_function: MmBackward0;gemm": {50, 0},
	}, times(total))
}

// Each file has its own devices: the ranks of a job number theirs alike, and do not state which
// they are.
func TestIdleTimeOfOneFileIsNotFilledByAnother(t *testing.T) {
	total := stackprofile.NewTotal()
	for shift := range int64(2) {
		record(t, total, func(p profile) {
			p.add(x(event.KindKernel, "gemm", 1000+50*shift, 50, 0))
			p.add(x(event.KindKernel, "gemm", 1200+50*shift, 50, 0))
		})
	}
	got := stackprofile.Totals(total.Profiles())
	assert.EqualValues(t, 200, got[stackprofile.Time])
	assert.EqualValues(t, 300, got[stackprofile.IdleTime])
}

func TestDeepRangesAreBounded(t *testing.T) {
	total := stackprofile.NewTotal()
	const depth = 3000
	record(t, total, func(p profile) {
		for i := range int64(depth) {
			p.add(x(event.KindAnnotation, "range", 1000+i, 2*depth-2*i, 0))
		}
		p.add(x(event.KindRuntime, "cudaLaunchKernel", 1000+depth, 1, 1))
		p.add(x(event.KindKernel, "gemm", 9000, 50, 1))
	})
	for stack, v := range times(total) {
		assert.Equal(t, [2]float64{50, 0}, v)
		assert.Less(t, strings.Count(stack, ";"), 1010)
	}
}
