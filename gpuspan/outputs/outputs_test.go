// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package outputs_test

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/outputs"
)

// The standard library's FNV-1a over the bytes is the independent reference.
func TestChecksumIsFNV1aOverLittleEndianBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 50 {
		data := make([]float32, n)
		var raw []byte
		for i := range data {
			data[i] = math.Float32frombits(rng.Uint32())
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(data[i]))
		}
		h := fnv.New64a()
		_, _ = h.Write(raw)
		require.Equal(t, h.Sum64(), outputs.Checksum(data))
	}
	require.Equal(t, "cbf29ce484222325", outputs.Format(outputs.Checksum(nil)), "the offset basis")
	require.NotEqual(t, outputs.Checksum([]float32{0}), outputs.Checksum([]float32{float32(math.Copysign(0, -1))}))
}

func TestFirstDivergence(t *testing.T) {
	o := func(op string, n int64, sum uint64) outputs.Output {
		return outputs.Output{Operation: op, Occurrence: n, Checksum: sum}
	}
	run := []outputs.Output{o("a", 1, 1), o("b", 1, 2), o("a", 2, 3)}
	for _, tt := range []struct {
		other []outputs.Output
		at    int
		ok    bool
	}{
		{[]outputs.Output{o("a", 1, 1), o("b", 1, 2), o("a", 2, 3)}, 3, false},
		{[]outputs.Output{o("a", 1, 1), o("b", 1, 9), o("a", 2, 9)}, 1, true},
		{[]outputs.Output{o("a", 1, 1), o("a", 2, 2)}, 1, true},
		{[]outputs.Output{o("a", 1, 1)}, 1, true},
		{nil, 0, true},
	} {
		i, ok := outputs.FirstDivergence(run, tt.other)
		require.Equal(t, tt.at, i)
		require.Equal(t, tt.ok, ok)
	}
	i, ok := outputs.FirstDivergence(nil, nil)
	require.Zero(t, i)
	require.False(t, ok)
}

func TestReadOutputsNamesTheLine(t *testing.T) {
	for _, line := range []string{
		"", "x", `123 1 "op"`, `000000000000000g 1 "op"`, `0000000000000001 0 "op"`, `0000000000000001 1 op`,
		`0000000000000001 1`, `0000000000000001  1 "op"`,
	} {
		got, err := outputs.Read(strings.NewReader("0000000000000001 1 \"op\"\n" + line + "\n"))
		require.ErrorContains(t, err, "line 2: must be a checksum of 16 hex digits", line)
		require.Len(t, got, 1)
	}
	_, err := outputs.Read(iotest.ErrReader(io.ErrUnexpectedEOF))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func FuzzReadOutputs(f *testing.F) {
	f.Add("cbf29ce484222325 1 \"layer 1\"\n")
	f.Add("0000000000000001 9223372036854775807 `x`")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := outputs.Read(strings.NewReader(text))
		for _, o := range got {
			require.Positive(t, o.Occurrence)
		}
		if err == nil {
			i, differ := outputs.FirstDivergence(got, got)
			require.False(t, differ)
			require.Len(t, got, i)
		}
	})
}
