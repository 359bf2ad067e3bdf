// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/profiletracetest"
)

// message is a message of protobuf as a test writes it.
type message []byte

func (m message) number(field protowire.Number, n int64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(n))
}

func (m message) text(field protowire.Number, b string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), b)
}

func (m message) in(field protowire.Number, inner message) message {
	return m.text(field, string(inner))
}

// entry is an entry of a table of a plane.
func entry(id int64, name string) message {
	return message{}.number(1, id).in(2, message{}.number(1, id).text(2, name))
}

// Numbers of statistics in the planes of tests.
const (
	statCorrelation = iota + 1
	statOperator
	statStep
	statCopy
	statStart
	statStop
	statDetails
	statMemset
)

var statNames = []string{
	"", "correlation_id", "hlo_op", "step_num", "memcpy_details", "profile_start_time", "profile_stop_time",
	"kernel_details", "memset_details",
}

func planeOf(name string, names []string, lines ...message) message {
	m := message{}.text(2, name)
	for _, l := range lines {
		m = m.in(3, l)
	}
	for i, n := range names { // tables follow the lines, as protobuf writes them
		m = m.in(4, entry(int64(i+1), n))
	}
	for i, n := range statNames[1:] {
		m = m.in(5, entry(int64(i+1), n))
	}
	return m
}

func row(id int64, name string, start int64, events ...message) message {
	m := message{}.number(1, id).text(2, name).number(3, start)
	for _, e := range events {
		m = m.in(4, e)
	}
	return m
}

func at(name, offset, duration int64, stats ...message) message {
	m := message{}.number(1, name).number(2, offset).number(3, duration)
	for _, s := range stats {
		m = m.in(4, s)
	}
	return m
}

func stat(id, n int64) message            { return message{}.number(1, id).number(4, n) }
func textStat(id int64, s string) message { return message{}.number(1, id).text(5, s) }

// profile is a step that launches a kernel and a copy, relative to a start at 1 s.
func profile() message {
	host := planeOf("/host:CPU", []string{"train", "cuLaunchKernel", "load", "$input.py:7 read", "XLA::Wait"},
		row(3, "python", 0, at(1, 0, 9_000_000, stat(statStep, 4)), at(2, 1_000_999, 500_000, stat(statCorrelation, 7)),
			at(3, 2_000_000, 1_000_000), at(4, 2_100_000, 500_000), at(5, 4_000_000, 1_000_000)))
	gpu := planeOf("/device:GPU:1", []string{"gemm", "MemcpyH2D"},
		row(7, "Stream #7(Compute)", 0, at(1, 3_000_400, 2_000_700, stat(statCorrelation, 7), textStat(statOperator, "dot.1"))),
		row(8, "XLA Ops", 0, at(1, 3_000_400, 2_000_700)),
		row(13, "Stream #13(MemcpyH2D)", 0, at(2, 6_000_000, 1_000_000,
			textStat(statCopy, "kind_src:pinned kind_dst:device size:4096 dest:1 async:1"))))
	env := planeOf("Task Environment", nil).in(6, stat(statStart, 1_000_000_000)).in(6, stat(statStop, 1_000_020_000))
	return message{}.in(1, host).in(1, gpu).in(1, env).text(4, "node7")
}

func write(t testing.TB, b []byte) string {
	path := filepath.Join(t.TempDir(), "host.xplane.pb")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

func packed(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func spans(t *testing.T, path string, o Options) ([]profiletracetest.Span, Stats, error) {
	var list []profiletracetest.Span
	st, err := ReadFile(t.Context(), path, o, func(_ context.Context, td ptrace.Traces) error {
		require.NoError(t, conformance.TracesFrom("xplane", td))
		list = append(list, profiletracetest.Spans(td)...)
		return nil
	})
	return list, st, err
}

func named(list []profiletracetest.Span, name string) (out []profiletracetest.Span) {
	for _, s := range list {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

var kernels = Options{Detail: emit.LevelKernels}
