// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// launches is a program that launches kernels one after another and waits for the device now and
// then.
type launches struct {
	kernel    time.Duration // of the device, each on average
	host      time.Duration // of the host for each launch, on average, of which launch is in the call
	launch    time.Duration
	operators int // around each launch
	waitEvery int // launches
}

// run simulates the loop while recording costs the host this much for each operator and for each
// call. It returns the time for which the device was idle because the host launched too slowly, and
// the trace.
func (l *launches) run(operator, call time.Duration) (idle time.Duration, trace string) {
	const kernels, queued = 2000, 4 * time.Microsecond
	r := rand.New(rand.NewPCG(1, 2))
	spread := func(d time.Duration) time.Duration { return time.Duration(float64(d) * (0.5 + r.Float64())) }
	var events []string
	add := func(category, name string, thread int, start, end time.Duration, args string) {
		events = append(events, fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":1,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{%s}}`,
			category, name, thread, float64(start)/1e3, float64(end-start)/1e3, args))
	}
	host, device := time.Duration(0), time.Duration(0)
	for i := range kernels {
		begin := host
		host += spread(l.host)
		host += time.Duration(l.operators) * operator
		launched := host + l.launch
		for range l.operators {
			add("cpu_op", "aten::op", 1, begin, launched, "")
		}
		add("cuda_runtime", "cudaLaunchKernel", 1, host, launched, fmt.Sprintf(`"correlation":%d`, i+1))
		host = launched + call
		start := max(device, launched+queued)
		if i > 0 {
			idle += start - device
		}
		device = start + spread(l.kernel)
		add("kernel", "k", 7, start, device, fmt.Sprintf(`"device":0,"stream":7,"correlation":%d`, i+1))
		if (i+1)%l.waitEvery == 0 {
			end := max(host+2*time.Microsecond, device)
			add("cuda_runtime", "cudaStreamSynchronize", 1, host, end, "")
			host = end + call
		}
	}
	return idle, `{"traceEvents":[` + strings.Join(events, ",") + `]}`
}

// What launch_bound says about the time without the profiler is compared with a simulation of the
// same program without the cost of recording.
func TestTheCostOfRecordingIsNotTheProgramsOwn(t *testing.T) {
	for _, test := range []struct {
		name string
		loop launches
	}{
		{"bound by the device", launches{30 * time.Microsecond, 18 * time.Microsecond, 6 * time.Microsecond, 6, 500}},
		{"bound by the host", launches{10 * time.Microsecond, 40 * time.Microsecond, 6 * time.Microsecond, 6, 500}},
		{"about equal", launches{25 * time.Microsecond, 20 * time.Microsecond, 6 * time.Microsecond, 6, 100}},
		{"calls alone", launches{6 * time.Microsecond, 8 * time.Microsecond, 6 * time.Microsecond, 0, 500}},
		{"many waits", launches{20 * time.Microsecond, 20 * time.Microsecond, 6 * time.Microsecond, 6, 10}},
	} {
		t.Run(test.name, func(t *testing.T) {
			without, _ := test.loop.run(0, 0)
			recorded, trace := test.loop.run(recording.Operator, recording.Call)
			require.Greater(t, recorded, without)
			v := launchBound(t, trace)
			left := v.Weight
			assert.InDelta(t, recorded.Seconds(), v.Gain.Seconds(), 0.15*recorded.Seconds(), "the gain is what the profile shows")
			assert.InDelta(t, without.Seconds(), left.Seconds(), 0.1*recorded.Seconds(), "left of %v, without the profiler %v", recorded, without)
			assert.Contains(t, v.Evidence, "the profiler itself costs the host about")
			assert.Equal(t, finding.Medium, v.Certainty)
		})
	}
	// A host whose launches are faster than on those machines also records faster.
	fast := launches{6 * time.Microsecond, 16 * time.Microsecond, 500 * time.Nanosecond, 2, 500}
	idle, trace := fast.run(0, 0)
	v := launchBound(t, trace)
	assert.InDelta(t, idle.Seconds(), v.Gain.Seconds(), 0.15*idle.Seconds())
	assert.Greater(t, v.Weight.Seconds(), 0.85*v.Gain.Seconds())
}

func launchBound(t *testing.T, trace string) finding.Finding {
	t.Helper()
	st, err := Read(t.Context(), strings.NewReader(trace), Options{}, func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	require.Len(t, st.Devices, 1)
	for _, v := range st.Devices[0].Findings {
		if v.Kind == semconv.GPUFindingKindLaunchBound {
			return v
		}
	}
	require.Fail(t, "no launch_bound", st.Devices[0].Findings)
	return finding.Finding{}
}
