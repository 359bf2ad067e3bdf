// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bufio"
	"context"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// TestMemoryStaysBoundedForLargeFiles streams a generated trace of 256 MB, or
// OTELGPU_LARGE_TRACE_MB, through the reader; only the spill file is on disk. Memory must stay
// under 256 MB for any size.
func TestMemoryStaysBoundedForLargeFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	size := int64(256)
	if s := os.Getenv("OTELGPU_LARGE_TRACE_MB"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
		size = n
	}
	for _, detail := range []Detail{DetailAuto, DetailKernels} {
		t.Run(detail.String(), func(t *testing.T) {
			r, w := io.Pipe()
			var want synthetic
			go func() {
				b := bufio.NewWriterSize(w, 1<<20)
				s, err := writeSynthetic(b, size<<20)
				want = s
				if err == nil {
					err = b.Flush()
				}
				w.CloseWithError(err)
			}()
			var peak atomic.Uint64
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak.Store(max(peak.Load(), m.Sys-m.HeapReleased))
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
					}
				}
			}()
			var kernels, copies, kernelNS, copyNS, bytes, steps int64
			begin := time.Now()
			st, err := Read(t.Context(), r, Options{Detail: detail}, func(_ context.Context, td ptrace.Traces) error {
				for _, s := range spansOf([]ptrace.Traces{td}) {
					m := s.Attributes()
					integer := func(key string) int64 {
						if v, ok := m.Get(key); ok {
							return v.Int()
						}
						return 0
					}
					nanoseconds := func(key string) int64 {
						if v, ok := m.Get(key); ok {
							return int64(math.Round(v.Double() * 1e9))
						}
						return 0
					}
					kernels += integer("gpu.summary.kernel.count")
					kernelNS += nanoseconds("gpu.summary.kernel.duration")
					copies += integer("gpu.summary.copy.count")
					copyNS += nanoseconds("gpu.summary.copy.duration")
					bytes += integer("gpu.summary.copy.size")
					ns := int64(s.EndTimestamp() - s.StartTimestamp())
					if v, ok := m.Get("gpu.operation.type"); ok {
						switch v.Str() {
						case "step":
							steps++
						case "kernel":
							kernels, kernelNS = kernels+1, kernelNS+ns
						case "copy":
							copies, copyNS, bytes = copies+1, copyNS+ns, bytes+integer("gpu.io.size")
						}
					}
				}
				return nil
			})
			close(stop)
			<-done
			require.NoError(t, err)
			took := time.Since(begin)
			t.Logf("%d MB, %d events in %v (generating included): %d spans, %d cut, spilled %d MB, peak memory %d MB",
				st.JSONBytes>>20, st.Records, took.Round(time.Millisecond), st.Spans, st.Cut, st.SpilledBytes>>20,
				peak.Load()>>20)
			assert.Equal(t, want.launches, kernels)
			assert.Equal(t, want.copies, copies)
			assert.Equal(t, want.kernelNS, kernelNS)
			assert.Equal(t, want.copyNS, copyNS)
			assert.Equal(t, want.bytes, bytes)
			if st.Cut == 0 {
				assert.Equal(t, want.steps, steps)
			}
			assert.Less(t, peak.Load(), uint64(256<<20), "peak memory")
		})
	}
}
