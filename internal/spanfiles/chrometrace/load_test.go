// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

const loadBase = int64(1_700_000_000_000_000_000)

// work returns a span of device work that was launched some time before it started.
func work(kind, device string, launched, start, end int64, args ...chrometrace.Arg) chrometrace.Event {
	e := chrometrace.Event{
		Process: chrometrace.Process{Service: "train"}, Name: kind, Start: loadBase + start, End: loadBase + end,
		Span:  [8]byte{1},
		Trace: [16]byte{1}, Args: append(args,
			chrometrace.Arg{Key: "gpu.operation.type", Value: chrometrace.String(kind)},
			chrometrace.Arg{Key: "gpu.device.ordinal", Value: chrometrace.Int(3)},
			chrometrace.Arg{Key: "gpu.start.delay", Value: chrometrace.Float(float64(start-launched) / 1e9)}),
	}
	if device != "" {
		e.Args = append(e.Args, chrometrace.Arg{Key: "hw.id", Value: chrometrace.String(device)})
	}
	e.Classify()
	return e
}

func copied(device string, start, end, size int64, direction string) chrometrace.Event {
	return work("copy", device, start, start, end, chrometrace.Arg{Key: "gpu.io.size", Value: chrometrace.Int(size)},
		chrometrace.Arg{Key: "gpu.copy.direction", Value: chrometrace.String(direction)})
}

// point is the value of a counter from a time on.
type point struct {
	at    int64
	value float64
}

// drawn returns the counters of a trace by process name and counter name.
func drawn(t *testing.T, trace []byte) map[string][]point {
	var doc struct {
		Base   int64 `json:"baseTimeNanoseconds"`
		Events []struct {
			Ph, Name string
			Pid      int64
			Ts       float64
			Args     map[string]any
		} `json:"traceEvents"`
	}
	require.NoError(t, json.Unmarshal(trace, &doc))
	names, out := map[int64]string{}, map[string][]point{}
	for _, e := range doc.Events {
		if e.Ph == "M" && e.Name == "process_name" {
			names[e.Pid] = e.Args["name"].(string)
		}
	}
	for _, e := range doc.Events {
		if e.Ph != "C" {
			continue
		}
		for unit, v := range e.Args {
			k := names[e.Pid] + ": " + e.Name + " in " + unit
			out[k] = append(out[k], point{doc.Base + int64(math.Round(e.Ts*1000)) - loadBase, v.(float64)})
		}
	}
	return out
}

func TestCopiesAndQueuesAreCounters(t *testing.T) {
	var b bytes.Buffer
	w := chrometrace.NewWriter(&b)
	require.NoError(t, w.Write([]chrometrace.Event{
		copied("GPU-a", 5000, 9000, 4000, "host_to_device"),  // 1 GB/s, in another order
		copied("GPU-a", 1000, 6000, 10000, "host_to_device"), // 2 GB/s
		copied("GPU-a", 2000, 3000, 500, "device_to_host"),
		work("kernel", "", 100, 400, 500), work("kernel", "", 200, 500, 600), work("collective", "", 450, 700, 900),
		work("section", "", 100, 5000, 6000), // contains work, but is not work itself
	}))
	require.NoError(t, w.Close())
	require.Equal(t, map[string][]point{
		"device GPU 3 GPU-a: copies host_to_device in By/s": {{1000, 2e9}, {5000, 3e9}, {6000, 1e9}, {9000, 0}},
		"device GPU 3 GPU-a: copies device_to_host in By/s": {{2000, 0.5e9}, {3000, 0}},
		"device train GPU 3: queue in operations":           {{100, 1}, {200, 2}, {400, 1}, {450, 2}, {500, 1}, {700, 0}},
	}, drawn(t, b.Bytes()))
	require.Zero(t, w.Stats().Counters, "of gauges")
}

func TestALongTraceHasTheHighestQueuesOfItsParts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var b bytes.Buffer
	w := chrometrace.NewWriter(&b)
	const kernels = 50_000
	for i := range int64(kernels) {
		at := 1000 * (i + 1)
		queued := int64(500)
		if i == kernels/2 {
			queued = 90_000 // 90 others start meanwhile, each queued half of the time
		}
		require.NoError(t, w.Write([]chrometrace.Event{work("kernel", "GPU-a", at+100_000-queued, at+100_000, at+100_900)}))
	}
	require.NoError(t, w.Close())
	points := drawn(t, b.Bytes())["device GPU 3 GPU-a: queue in operations"]
	require.Less(t, len(points), 1<<14)
	require.Greater(t, len(points), 1<<11)
	highest := 0.0
	for i, p := range points {
		highest = max(highest, p.value)
		if i > 0 {
			require.GreaterOrEqual(t, p.at, points[i-1].at)
		}
	}
	require.Equal(t, 2.0, highest)
	require.Equal(t, 0.0, points[len(points)-1].value)
}

// refusing fails once.
type refusing struct {
	bytes.Buffer
	fail bool
}

func (r *refusing) Write(b []byte) (int, error) {
	if r.fail {
		r.fail = false
		return 0, errors.New("full")
	}
	return r.Buffer.Write(b)
}

func TestRewrittenSpansCountOnce(t *testing.T) {
	r := &refusing{fail: true}
	w := chrometrace.NewWriter(r)
	batch := []chrometrace.Event{work("kernel", "GPU-a", 100, 400, 500)}
	require.Error(t, w.Write(batch))
	require.NoError(t, w.Write(batch))
	r.fail = true
	require.Error(t, w.Close())
	require.NoError(t, w.Close())
	require.Equal(t, map[string][]point{"device GPU 3 GPU-a: queue in operations": {{100, 1}, {400, 0}}},
		drawn(t, r.Bytes()))
}
