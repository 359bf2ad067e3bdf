// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/semconv"
)

// ownPackages begin the names of functions that are no part of the caller's stack.
var ownPackages = []string{
	"github.com/otelgpu/otelgpu/gpuspan.",
	"github.com/otelgpu/otelgpu/gpuspan/train.",
	"github.com/otelgpu/otelgpu/gpuspan/internal/",
}

// own reports whether a frame is this library's. Its tests are callers as any other.
func own(f runtime.Frame) bool {
	return !strings.HasSuffix(f.File, "_test.go") &&
		slices.ContainsFunc(ownPackages, func(p string) bool { return strings.HasPrefix(f.Function, p) })
}

// describeCode appends code.* of the caller of Start.
func describeCode(kv []attribute.KeyValue, r *record.Record, depthLimit int) []attribute.KeyValue {
	if r.Extra == nil || len(r.Extra.Stack) == 0 {
		return kv
	}
	frames := runtime.CallersFrames(r.Extra.Stack)
	var stack strings.Builder
	depth := 0
	for f, _ := frames.Next(); f.PC != 0; f, _ = frames.Next() {
		if own(f) {
			continue
		}
		if depth == 0 {
			kv = append(kv, semconv.CodeFunctionNameKey.String(f.Function),
				semconv.CodeFilePathKey.String(f.File), semconv.CodeLineNumberKey.Int(f.Line))
		}
		if depth < depthLimit {
			fmt.Fprintf(&stack, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		}
		depth++
	}
	if stack.Len() > 0 {
		kv = append(kv, semconv.CodeStacktraceKey.String(stack.String()))
	}
	return kv
}
