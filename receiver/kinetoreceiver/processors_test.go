// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// onProcessors reads a text with GOMAXPROCS n, and returns all spans as JSON.
func onProcessors(t *testing.T, n int, text string, o Options) (string, Stats) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	var out strings.Builder
	st, err := Read(t.Context(), strings.NewReader(text), o, func(_ context.Context, td ptrace.Traces) error {
		b, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		out.Write(b)
		return err
	})
	require.NoError(t, err)
	return out.String(), st
}

// many returns a trace with more ranges than are kept at a time, on two devices, some steps of
// which end long before others.
func many() string {
	m := newMachine(1, styles()[0])
	m.steps(60, func(i int) {
		m.device = int64(i % 2)
		m.within("user_annotation", fmt.Sprintf("section %d", i), func() { m.layers(150, 20_000) })
		m.now += 400_000_000
	})
	return m.text(2)
}

func TestSeveralProcessorsWriteTheSameSpans(t *testing.T) {
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	text := many()
	for _, detail := range []Detail{DetailAuto, DetailSteps, DetailAnnotations, DetailOperators, DetailKernels} {
		for _, o := range []Options{{Detail: detail}, {Detail: detail, MaxSpans: 300, BatchSpans: 7, MemoryMiB: 1}} {
			want, wantStats := onProcessors(t, 1, text, o)
			got, gotStats := onProcessors(t, 4, text, o)
			require.True(t, want == got, detail.String())
			require.Equal(t, wantStats, gotStats)
		}
	}
}

func TestSeveralProcessorsWriteTheSameSpansOfRecordedTraces(t *testing.T) {
	for _, file := range benchFiles {
		path := filepath.Join(recorded.Path(t), file)
		if recorded.LeftOut(path) {
			continue
		}
		for _, detail := range []Detail{DetailAuto, DetailKernels} {
			var all [2][]string
			for i := range all {
				func() {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1 + 2*i))
					batches, _ := read(t, path, Options{Detail: detail, BatchSpans: 5000})
					for _, b := range batches {
						text, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(b)
						require.NoError(t, err)
						all[i] = append(all[i], string(text))
					}
				}()
			}
			require.True(t, assert.ObjectsAreEqual(all[0], all[1]), "%s at %s", file, detail.String())
		}
	}
}

// The consumer of the spans may reject them, panic, or cancel: all goroutines end, and its error is
// returned.
func TestGoroutinesEndWithTheConsumer(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	text, refused := many(), errors.New("refused")
	for _, at := range []int{1, 2, 100} {
		o := Options{Detail: DetailKernels, BatchSpans: 50}
		reading := func(ctx context.Context, f func() error) error {
			n := 0
			_, err := Read(ctx, strings.NewReader(text), o, func(context.Context, ptrace.Traces) error {
				if n++; n == at {
					return f()
				}
				require.Less(t, n, at, "after the end")
				return nil
			})
			return err
		}
		assert.ErrorIs(t, reading(t.Context(), func() error { return refused }), refused)
		assert.PanicsWithValue(t, "broken", func() { _ = reading(t.Context(), func() error { panic("broken") }) })
		ctx, cancel := context.WithCancelCause(t.Context())
		assert.ErrorIs(t, reading(ctx, func() error { cancel(refused); return refused }), refused)
	}
}
