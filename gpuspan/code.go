// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"fmt"
	"runtime"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// maxStack bounds Settings.StackDepth.
const maxStack = 64

// packagePrefix begins the names of functions of this package, which are no part of the caller's stack.
const packagePrefix = "github.com/otelgpu/otelgpu/gpuspan."

// locate remembers who starts a section. Names are looked up when the span is made.
func (p *Profiler) locate(r *record) {
	if r.extra == nil {
		r.extra = &extra{}
	}
	var pcs [maxStack]uintptr
	n := runtime.Callers(3, pcs[:min(max(p.cfg.StackDepth, 1)+4, maxStack)])
	r.extra.stack = append(r.extra.stack[:0], pcs[:n]...)
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
		if !strings.HasPrefix(f.Function, packagePrefix) || strings.HasSuffix(f.File, "_test.go") {
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
