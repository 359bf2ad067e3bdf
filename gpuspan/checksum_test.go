// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// The standard library's FNV-1a over the bytes is the second method.
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
		assert.Equal(t, h.Sum64(), gpuspan.Checksum(data))
	}
	assert.Equal(t, "cbf29ce484222325", gpuspan.FormatChecksum(gpuspan.Checksum(nil)), "the offset basis")
	assert.NotEqual(t, gpuspan.Checksum([]float32{0}), gpuspan.Checksum([]float32{float32(math.Copysign(0, -1))}))
}

func TestFirstDivergence(t *testing.T) {
	o := func(op string, n int64, sum uint64) gpuspan.Output {
		return gpuspan.Output{Operation: op, Occurrence: n, Checksum: sum}
	}
	run := []gpuspan.Output{o("a", 1, 1), o("b", 1, 2), o("a", 2, 3)}
	for _, tt := range []struct {
		other []gpuspan.Output
		at    int
		ok    bool
	}{
		{[]gpuspan.Output{o("a", 1, 1), o("b", 1, 2), o("a", 2, 3)}, 3, false},
		{[]gpuspan.Output{o("a", 1, 1), o("b", 1, 9), o("a", 2, 9)}, 1, true},
		{[]gpuspan.Output{o("a", 1, 1), o("a", 2, 2)}, 1, true},
		{[]gpuspan.Output{o("a", 1, 1)}, 1, true},
		{nil, 0, true},
	} {
		i, ok := gpuspan.FirstDivergence(run, tt.other)
		assert.Equal(t, tt.at, i)
		assert.Equal(t, tt.ok, ok)
	}
	i, ok := gpuspan.FirstDivergence(nil, nil)
	assert.Zero(t, i)
	assert.False(t, ok)
}
