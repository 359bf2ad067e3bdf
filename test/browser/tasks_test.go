// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// traceEvent is an event of Chromium's trace: a task of a thread, or work in it. Times are in
// microseconds; CPU is the time of the thread on a processor.
type traceEvent struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Start    float64        `json:"ts"`
	Duration float64        `json:"dur"`
	CPU      float64        `json:"tdur"`
	Args     map[string]any `json:"args"`
}

// tasks starts a record of what the browser does, and returns a function that ends it and returns
// the tasks of the threads that ran scripts of pages, the longest CPU time first.
func tasks(t *testing.T) func() []traceEvent {
	t.Helper()
	needsBrowser(t)
	var events []traceEvent
	done := make(chan struct{})
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(func(e any) {
		switch e := e.(type) {
		case *tracing.EventDataCollected:
			for _, v := range e.Value {
				var x traceEvent
				if json.Unmarshal(v, &x) == nil {
					events = append(events, x)
				}
			}
		case *tracing.EventTracingComplete:
			close(done)
		}
	}))
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, tracing.Start, tracing.StartParams{TraceConfig: &tracing.TraceConfig{
			IncludedCategories: []string{"toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"},
			ExcludedCategories: []string{"*"},
		}})
		return err
	})))
	return func() (list []traceEvent) {
		require.NoError(t, chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, tracing.End, cdp.Empty{})
			return err
		})))
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("the trace does not end")
		}
		scripts := map[[2]int]bool{}
		for _, e := range events {
			if data, _ := e.Args["data"].(map[string]any); e.Name == "FunctionCall" && strings.HasPrefix(fmt.Sprint(data["url"]), "http") {
				scripts[[2]int{e.Process, e.Thread}] = true
			}
		}
		for _, e := range events {
			if e.Name == "RunTask" && scripts[[2]int{e.Process, e.Thread}] {
				list = append(list, e)
			}
		}
		require.NotEmpty(t, list)
		slices.SortFunc(list, func(a, b traceEvent) int { return cmp.Compare(b.CPU, a.CPU) })
		return list
	}
}

// logTasks logs the longest tasks, in ms of CPU time and of wall time.
func logTasks(t *testing.T, what string, list []traceEvent) {
	t.Helper()
	long, wall := 0, 0.0
	for _, e := range list {
		wall = max(wall, e.Duration/1e3)
		if e.Duration > 50e3 {
			long++
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%s: %d tasks; the longest used %.1f, %.1f and %.1f ms of CPU; %d lasted more than 50 ms, the longest %.1f ms (load %.4s)", what, len(list),
		list[0].CPU/1e3, list[1].CPU/1e3, list[2].CPU/1e3, long, wall, load)
}
