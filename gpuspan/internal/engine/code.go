// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// ownPackages begin the names of functions that are no part of the caller's stack.
var ownPackages = []string{
	"github.com/otelgpu/otelgpu/gpuspan.",
	"github.com/otelgpu/otelgpu/gpuspan/train.",
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine.",
}

// own reports whether a frame is this library's. Its tests are callers as any other.
func own(f runtime.Frame) bool {
	return !strings.HasSuffix(f.File, "_test.go") &&
		slices.ContainsFunc(ownPackages, func(p string) bool { return strings.HasPrefix(f.Function, p) })
}

// ownFrames is how many frames of the library's own may lie between a caller and locate.
const ownFrames = 6

// locate remembers who starts a section. Names are looked up when the span is made.
func (p *Profiler) locate(r *record) {
	var pcs [settings.MaxStackDepth + ownFrames]uintptr
	n := runtime.Callers(3, pcs[:max(p.cfg.StackDepth, 1)+ownFrames])
	e := r.more()
	e.stack = append(e.stack[:0], pcs[:n]...)
}

// describeCode appends code.* of the caller of Start.
func (p *Profiler) describeCode(kv []attribute.KeyValue, r *record) []attribute.KeyValue {
	if r.extra == nil || len(r.extra.stack) == 0 {
		return kv
	}
	frames := runtime.CallersFrames(r.extra.stack)
	var stack strings.Builder
	depth := 0
	for {
		f, more := frames.Next()
		if f.PC == 0 {
			break
		}
		if !own(f) {
			if depth == 0 {
				kv = append(kv, semconv.CodeFunctionNameKey.String(f.Function),
					semconv.CodeFilePathKey.String(f.File), semconv.CodeLineNumberKey.Int(f.Line))
			}
			if depth < p.cfg.StackDepth {
				fmt.Fprintf(&stack, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
			}
			depth++
		}
		if !more {
			break
		}
	}
	if stack.Len() > 0 {
		kv = append(kv, semconv.CodeStacktraceKey.String(stack.String()))
	}
	return kv
}
