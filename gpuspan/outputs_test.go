// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
)

func TestOutputsAreLoggedInTheOrderOfTheStream(t *testing.T) {
	var log strings.Builder
	r := newRig(t, gpuspan.WithOutputLog(&log))
	s, _ := r.stream()
	a, b := gpuspan.NewOperation("a \"quoted\"\nname"), gpuspan.NewOperation("b")
	for i := range 3 {
		x := a.Start(context.Background(), s)
		y := x.Start(b)
		y.Checksum(uint64(i))
		y.End()
		if i != 1 {
			x.Checksum(1 << 63)
			x.Checksum(7) // the last one counts
		}
		x.End()
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	got, err := gpuspan.ReadOutputs(strings.NewReader(log.String()))
	require.NoError(t, err)
	assert.Equal(t, []gpuspan.Output{
		{Operation: "b", Occurrence: 1, Checksum: 0},
		{Operation: a.Name(), Occurrence: 1, Checksum: 7},
		{Operation: "b", Occurrence: 2, Checksum: 1},
		{Operation: "b", Occurrence: 3, Checksum: 2},
		{Operation: a.Name(), Occurrence: 3, Checksum: 7},
	}, got)
	assert.Equal(t, "0000000000000007", attrs(r.named(a.Name())[0])["gpu.output.checksum"].AsString())
	assert.NotContains(t, attrs(r.named(a.Name())[1]), "gpu.output.checksum")
}

func TestALogThatCannotBeWrittenIsReportedOnce(t *testing.T) {
	r := newRig(t, gpuspan.WithOutputLog(failing{}))
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	for range 3 {
		x := op.Start(context.Background(), s)
		x.Checksum(1)
		x.End()
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.errs, 1)
	assert.EqualError(t, r.errs[0], "gpuspan: cannot write the log of outputs: disk full")
	assert.Len(t, r.named("op"), 3)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestReadOutputsNamesTheLine(t *testing.T) {
	for _, line := range []string{
		"", "x", `123 1 "op"`, `000000000000000g 1 "op"`, `0000000000000001 0 "op"`, `0000000000000001 1 op`, `0000000000000001 1`, `0000000000000001  1 "op"`,
	} {
		got, err := gpuspan.ReadOutputs(strings.NewReader("0000000000000001 1 \"op\"\n" + line + "\n"))
		assert.ErrorContains(t, err, "line 2: must be a checksum of 16 hex digits", line)
		assert.Len(t, got, 1)
	}
	_, err := gpuspan.ReadOutputs(iotest.ErrReader(io.ErrUnexpectedEOF))
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func FuzzReadOutputs(f *testing.F) {
	f.Add("cbf29ce484222325 1 \"layer 1\"\n")
	f.Add("0000000000000001 9223372036854775807 `x`")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := gpuspan.ReadOutputs(strings.NewReader(text))
		for _, o := range got {
			require.Positive(t, o.Occurrence)
		}
		if err == nil {
			i, differ := gpuspan.FirstDivergence(got, got)
			require.False(t, differ)
			require.Len(t, got, i)
		}
	})
}
