// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package require

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Goroutines that package testing and the runtime start for themselves.
var ofTheRunner = []string{
	"testing.Main(", "testing.(*M).", "testing.tRunner(", "testing.runFuzz", "testing/internal/testdeps.",
	"runtime.goexit0(", "created by runtime.gc", "created by runtime/trace.Start", "os/signal.signal_recv",
	"created by os/signal.Notify", "runtime.ensureSigM", "runtime/pprof.",
}

// NoLeaks runs the tests and exits, with failure when goroutines that they started are still there after 10 s.
func NoLeaks(m *testing.M) {
	code := m.Run()
	if code == 0 {
		left := leaked()
		for end := time.Now().Add(10 * time.Second); len(left) > 0 && time.Now().Before(end); left = leaked() {
			time.Sleep(10 * time.Millisecond)
		}
		if len(left) > 0 {
			fmt.Fprintf(os.Stderr, "goroutines that the tests left:\n\n%s\n", strings.Join(left, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

func leaked() []string {
	buf := make([]byte, 1<<16)
	n := runtime.Stack(buf, true)
	for n == len(buf) {
		buf = make([]byte, 2*len(buf))
		n = runtime.Stack(buf, true)
	}
	var left []string
	for i, s := range strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n") {
		known := i == 0 // this one
		for _, f := range ofTheRunner {
			known = known || strings.Contains(s, f)
		}
		if !known {
			left = append(left, s)
		}
	}
	return left
}
