// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ctest

import (
	"sync"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Stub controls a built driver stub.
type Stub struct {
	Path string // of the library, for the code under test

	// Set changes a setting of csrc/gpu.h, e.g. drift_ppm, tick (ns), submit_ns, completion_ns,
	// jitter_ns, launch_ns, devices, manual (1: the clock moves by Advance alone).
	Set func(name string, v float64)
	// Fail makes calls of fn fail with code: after that many good ones, times times.
	Fail func(fn string, code int32, after, times int64)
	// FailStream makes all calls that concern the stream fail with code, as after a device error; 0
	// heals.
	FailStream func(stream uintptr, code int64)
	// Count is how often something was called: records, queries, synchronizes, elapseds; or lives:
	// live_events, live_streams; dead_destroys are events and streams that were destroyed though
	// their context was.
	Count func(what string) int64
	// Log keeps the last n records of a stream.
	Log func(stream uintptr, n int64)
	// Logged is how many events were recorded on a stream since Log.
	Logged func(stream uintptr) int64
	// Func registers a function of the library in f, a pointer to a func.
	Func func(f any, name string)

	once     sync.Once
	zero     time.Time
	zeroHost int64
	now      func() int64
	advance  func(int64)
	work     func(uintptr, float64)
	logAt    func(uintptr, int64) int64
}

// CUDA builds a stub of libcuda as CUDA 12.8 has it.
func CUDA(t testing.TB) *Stub { t.Helper(); return load(t, "cuda.c") }

// OldCUDA builds a stub of libcuda without cuEventElapsedTime_v2 and cuDeviceGetUuid_v2.
func OldCUDA(t testing.TB) *Stub { t.Helper(); return load(t, "cuda.c", "-DOLD_DRIVER") }

// HIP builds a stub of libamdhip64.
func HIP(t testing.TB) *Stub { t.Helper(); return load(t, "hip.c") }

// Load builds a library of csrc and loads it. register puts its functions into pointers to funcs.
func Load(t testing.TB, source string, flags ...string) (path string, register func(f any, name string)) {
	t.Helper()
	path = build(t, source, flags...)
	lib, err := dl.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, func(f any, name string) { purego.RegisterFunc(f, uintptr(lib.Lookup(name))) }
}

func load(t testing.TB, source string, flags ...string) *Stub {
	t.Helper()
	s := &Stub{}
	s.Path, s.Func = Load(t, source, flags...)
	for name, f := range map[string]any{
		"stub_set": &s.Set, "stub_now": &s.now, "stub_advance": &s.advance, "stub_fail": &s.Fail, "stub_count": &s.Count,
		"stub_work": &s.work, "stub_log_start": &s.Log, "stub_log_len": &s.Logged, "stub_log_at": &s.logAt,
		"stub_stream_fail": &s.FailStream,
	} {
		s.Func(f, name)
	}
	t.Cleanup(func() {
		if n := s.Count("dead_uses"); n > 0 {
			t.Errorf("%d uses of destroyed streams or events", n)
		}
	})
	return s
}

// Manual makes the clock move by Advance alone, without latencies, drift and ticks.
func (s *Stub) Manual() *Stub {
	for name, v := range map[string]float64{"manual": 1, "submit_ns": 0, "completion_ns": 0, "tick": 0, "drift_ppm": 0} {
		s.Set(name, v)
	}
	return s
}

// Advance moves the manual clock.
func (s *Stub) Advance(d time.Duration) { s.advance(int64(d)) }

// Work puts d of GPU work on a stream.
func (s *Stub) Work(stream uintptr, d time.Duration) { s.work(stream, float64(d)) }

// LoggedAt returns when the i-th logged call actually happened. The stub's CLOCK_MONOTONIC is Go's
// monotonic clock, too; the two are compared once, by the closest of many readings. In manual mode
// there is no such relation.
func (s *Stub) LoggedAt(stream uintptr, i int64) time.Time {
	s.once.Do(func() {
		best := time.Hour
		for range 2000 {
			a := time.Now()
			n := s.now()
			if d := time.Since(a); d < best {
				best, s.zero, s.zeroHost = d, a.Add(d/2), n
			}
		}
	})
	return s.zero.Add(time.Duration(s.logAt(stream, i) - s.zeroHost))
}
