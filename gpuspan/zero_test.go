// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/hip"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
	"github.com/otelgpu/otelgpu/gpuspan/otlp"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// Every method of every exported type works on nil and on the zero value, also with nil or zero
// arguments.
func TestEveryMethodWorksOnNilAndZeroValues(t *testing.T) {
	for _, v := range []any{
		(*gpuspan.Profiler)(nil), &gpuspan.Profiler{}, (*gpuspan.Stream)(nil), &gpuspan.Stream{}, (*gpuspan.Operation)(nil),
		&gpuspan.Operation{},
		gpuspan.Section{},
		(*gpuspan.IDGenerator)(nil), &gpuspan.IDGenerator{}, (*train.Loop)(nil), &train.Loop{}, (*train.Step)(nil),
		&train.Step{},
		settings.Key{},
		settings.Schedule{},
		(*otlp.Sink)(nil), &otlp.Sink{},
	} {
		for _, zero := range []bool{true, false} {
			all(t, v, zero)
		}
	}
	x := gpuspan.NewOperation("op").Start(context.Background(), &gpuspan.Stream{})
	require.Equal(t, gpuspan.Section{}, x)
	r := newRig(t)
	s, _ := r.stream()
	require.Equal(t, gpuspan.Section{}, new(gpuspan.Operation).Start(context.Background(), s))
	y := gpuspan.NewOperation("op").Start(context.Background(), s)
	require.Equal(t, gpuspan.Section{}, y.StartOn(gpuspan.NewOperation("op"), &gpuspan.Stream{}))
	all(t, s, true)
	all(t, y, true)
	require.Nil(t, gpuspan.StreamFromContext(nil))                                    //nolint:staticcheck // nil is what is tried
	require.Equal(t, s, gpuspan.StreamFromContext(gpuspan.ContextWithStream(nil, s))) //nolint:staticcheck // nil is what is tried
}

func TestANilOptionDoesNothing(t *testing.T) {
	for name, open := range map[string]func(){
		"cuda":   func() { _, _ = cuda.Open(nil) },
		"hip":    func() { _, _ = hip.Open(nil) },
		"nvtx":   func() { _, _ = nvtx.Open(nil) },
		"simgpu": func() { simgpu.New(nil, nil) },
	} {
		require.NotPanics(t, open, name)
	}
}

// all calls the methods. If zero is set, pointer arguments point to zero values; otherwise they are
// nil.
func all(t *testing.T, v any, zero bool) {
	m := reflect.ValueOf(v)
	for i := range m.NumMethod() {
		f, name := m.Method(i), fmt.Sprintf("%T.%s", v, m.Type().Method(i).Name)
		var args []reflect.Value
		for j := range f.Type().NumIn() {
			in := f.Type().In(j)
			switch {
			case f.Type().IsVariadic() && j == f.Type().NumIn()-1:
				continue
			case in == reflect.TypeFor[context.Context]():
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				args = append(args, reflect.ValueOf(ctx))
			case in.Kind() == reflect.Pointer && zero:
				args = append(args, reflect.New(in.Elem()))
			default:
				args = append(args, reflect.Zero(in))
			}
		}
		require.NotPanics(t, func() { f.Call(args) }, name)
	}
}
