// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kinetoreceiver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAgainstPython reads the same uncompressed traces with Read and with testdata/sums.py in turn, and reports how
// many times less processor time Read takes (garbage collection included; processor time, so that a busy machine does
// not matter). Read does more: besides the sums it writes the spans of the level.
func BenchmarkAgainstPython(b *testing.B) {
	python, err := exec.LookPath("python3")
	if err != nil {
		b.Skip("no python3")
	}
	for name, file := range benchFiles {
		text := plain(b, file)
		path := filepath.Join(b.TempDir(), name+".json")
		require.NoError(b, os.WriteFile(path, text, 0o600))
		for _, detail := range []Detail{DetailSteps, DetailAuto, DetailKernels} {
			b.Run(name+"/"+detail.String(), func(b *testing.B) {
				var ours, theirs time.Duration
				for b.Loop() {
					begin := processorTime(b)
					_, err := Read(b.Context(), bytes.NewReader(text), Options{Detail: detail}, func(context.Context, ptrace.Traces) error { return nil })
					require.NoError(b, err)
					ours += processorTime(b) - begin

					out, err := exec.CommandContext(b.Context(), python, filepath.Join("testdata", "sums.py"), path).Output()
					require.NoError(b, err)
					var seconds float64
					_, after, _ := strings.Cut(string(out), "seconds ")
					_, err = fmt.Sscan(after, &seconds)
					require.NoError(b, err)
					theirs += time.Duration(seconds * 1e9)
				}
				b.ReportMetric(theirs.Seconds()/ours.Seconds(), "times-python")
				b.ReportMetric(float64(len(text))*float64(b.N)/1e6/ours.Seconds(), "MB/s")
				b.ReportMetric(float64(len(text))*float64(b.N)/1e6/theirs.Seconds(), "MB/s-python")
			})
		}
	}
}
