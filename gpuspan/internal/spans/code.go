// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/semconv"
)

// ownRoot is the directory of package gpuspan, as the compiler names files.
var ownRoot = sync.OnceValue(func() string {
	_, file, _, _ := runtime.Caller(0)
	root, _ := strings.CutSuffix(file, "internal/spans/code.go")
	return root
})

// own reports whether a frame belongs to this library, not to the caller's stack. The file decides:
// a function of the library that is inlined into the caller's has a name in the caller's package.
// Tests count as callers.
func own(f runtime.Frame) bool {
	in, ok := strings.CutPrefix(f.File, ownRoot())
	if !ok || strings.HasSuffix(f.File, "_test.go") {
		return false
	}
	dir, _, nested := strings.Cut(in, "/")
	return !nested || dir == "internal" || dir == "train"
}

// describeCode appends code.* of the caller of Start.
func describeCode(kv []attribute.KeyValue, r *section.Record, depthLimit int) []attribute.KeyValue {
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
