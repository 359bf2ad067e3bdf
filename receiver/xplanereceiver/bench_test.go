// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"
)

// BenchmarkReadFile reads a profile of one GPU with XPLANE_KERNELS kernels (default 100,000) and
// their launches, 160 bytes for both. XPLANE_FILE keeps the file, for other programs.
func BenchmarkReadFile(b *testing.B) {
	kernelCount, _ := strconv.Atoi(cmp.Or(os.Getenv("XPLANE_KERNELS"), "100000"))
	path := cmp.Or(os.Getenv("XPLANE_FILE"), filepath.Join(b.TempDir(), "host.xplane.pb"))
	writeLarge(b, path, kernelCount)
	info, err := os.Stat(path)
	require.NoError(b, err)
	b.SetBytes(info.Size())
	for b.Loop() {
		st, err := ReadFile(b.Context(), path, kernels, func(context.Context, ptrace.Traces) error { return nil })
		require.NoError(b, err)
		require.EqualValues(b, kernelCount, st.Devices[0].Kernels)
	}
}

// writeLarge writes a profile, line by line: kernels of 10 µs every 12 µs on streams that follow
// each other, and the launch of each 5 µs before.
func writeLarge(b *testing.B, path string, n int) {
	const each = 50_000 // kernels of a line
	f, err := os.Create(path)
	require.NoError(b, err)
	w := bufio.NewWriter(f)
	names := make([]string, 200) // of kernels
	for i := range names {
		names[i] = fmt.Sprintf("loop_add_fusion_%d", i)
	}
	events := func(from int, event func(i int) message) (m message) {
		for i := from; i < min(from+each, n); i++ {
			m = m.in(4, event(i))
		}
		return m
	}
	const start, period = 20_000, 12_000_000 // nanoseconds, picoseconds
	plane := func(name, line string, names []string, event func(i int) message) {
		lines := func(write func(message)) {
			for from := 0; from < n; from += each {
				m := message{}.number(1, int64(from/each+1)).text(2, fmt.Sprintf(line, from/each+7)).number(3, start)
				write(message{}.in(3, append(m, events(from, event)...)))
			}
		}
		rest, size := planeOf(name, names), 0
		lines(func(m message) { size += len(m) })
		_, _ = w.Write(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), uint64(size+len(rest))))
		lines(func(m message) { _, _ = w.Write(m) })
		_, _ = w.Write(rest)
	}
	plane("/device:GPU:0", "Stream #%d(Compute)", names, func(i int) message {
		return at(int64(i%len(names)+1), int64(i)*period, 10_000_000, stat(statCorrelation, int64(i+1)),
			textStat(statOperator, names[i%len(names)]),
			textStat(statDetails,
				"regs:128 static_shared:0 dynamic_shared:49152 grid:64,8,1 block:256,1,1 occ_pct:25"))
	})
	plane("/host:CPU", "python/%d", []string{"cuLaunchKernel"}, func(i int) message {
		return at(1, int64(i)*period-5_000_000+start, 3_000_000, stat(statCorrelation, int64(i+1)))
	})
	require.NoError(b, w.Flush())
	require.NoError(b, f.Close())
}
