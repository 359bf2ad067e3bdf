// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestNamedSectionsMatchByTitleAndAreBounded(t *testing.T) {
	set := settings.Default()
	set.Names = 2
	r := newRig(t, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }))
	s, _ := r.stream()
	ctx := context.Background()
	s.StartNamed(ctx, "one")
	s.StartNamed(ctx, "two")
	s.StartNamed(ctx, "one")
	s.EndNamed("one", gpuspan.Work{Items: 2}) // ends the later one
	s.EndNamed("two", gpuspan.Work{})
	s.EndNamed("one", gpuspan.Work{Items: 1})
	s.EndNamed("one", gpuspan.Work{})
	s.EndNamed("never", gpuspan.Work{})
	for _, n := range []string{"three", "four"} {
		x := s.StartNamed(ctx, n)
		x.End()
		s.EndNamed(n, gpuspan.Work{}) // ended already
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	ones := r.named("one")
	require.Len(t, ones, 2)
	require.EqualValues(t, 2, attrs(ones[0])["gpu.operation.items"].AsInt64())
	require.EqualValues(t, 1, attrs(ones[1])["gpu.operation.items"].AsInt64())
	require.Len(t, r.named("(other)"), 2)
	require.Equal(t, map[string]int64{"names": 2, "unmatched_end": 4}, map[string]int64{
		"names": r.p.Misuse()["name_overflow"], "unmatched_end": r.p.Misuse()["unmatched_end"],
	})
}

func TestANamedSectionEndsAlsoWhenProfilingWasSwitchedOffMeanwhile(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	s.StartNamed(context.Background(), "a")
	r.p.SetEnabled(false)
	s.EndNamed("a", gpuspan.Work{Items: 3})
	s.EndNamed("a", gpuspan.Work{}) // off: not counted as unmatched
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("a"), 1)
	require.EqualValues(t, 3, attrs(r.named("a")[0])["gpu.operation.items"].AsInt64())
	require.Zero(t, r.p.Misuse()["unmatched_end"])
}

// Names from run time may be anything: they take bounded memory, and never make a batch impossible
// to encode.
func TestNamesOfAnyKindAreBoundedAndCanBeExported(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	huge, broken := strings.Repeat("é", 1<<19), "kernel\xff<\xc3>"
	for _, name := range []string{huge, broken, ""} {
		x := s.StartNamed(context.Background(), name)
		x.SetAttributes(semconv.GPUKernelNameKey.String(broken), semconv.GPUKernelModule(broken))
		s.EndNamed(name, gpuspan.Work{})
	}
	gpuspan.NewOperation(broken, gpuspan.Kernel(broken), gpuspan.Attributes(semconv.GPUKernelModule(broken))).Start(
		context.Background(), s).End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Zero(t, r.p.Misuse()["unmatched_end"])
	var names []string
	for _, span := range r.spans.Ended() {
		names = append(names, span.Name())
		require.True(t, utf8.ValidString(span.Name()))
		for key, v := range attrs(span) {
			require.True(t, utf8.ValidString(v.String()), key)
		}
	}
	require.Equal(t, []string{strings.Repeat("é", 2048), "kernel\ufffd<\ufffd>", "unnamed", "kernel\ufffd<\ufffd>"}, names)
}

// Operations with names from run time have a category and count items like others.
func TestNamedSectionsAreDescribed(t *testing.T) {
	var asked []string
	r := newRig(t, gpuspan.WithNamed(func(name string) []gpuspan.OperationOption {
		asked = append(asked, name)
		if name == "broken" {
			panic("described")
		}
		return []gpuspan.OperationOption{gpuspan.Category("serve"), gpuspan.ItemType("token")}
	}))
	s, h := r.stream()
	for _, name := range []string{"a", "a", "broken"} {
		s.StartNamed(context.Background(), name)
		r.busy(h, time.Millisecond)
		s.EndNamed(name, gpuspan.Work{Items: 24})
	}
	r.clock.Advance(5 * time.Millisecond)
	r.flush()
	require.Equal(t, []string{"(other)", "a", "broken"}, asked, "each once")
	require.Equal(t, "serve", attrs(r.named("a")[0])["gpu.operation.category"].AsString())
	require.Len(t, r.named("broken"), 1)
	require.EqualValues(t, 48, r.p.Snapshot().Items()[0].Count)
}
