// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/outputs"
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
	got, err := outputs.Read(strings.NewReader(log.String()))
	require.NoError(t, err)
	require.Equal(t, []outputs.Output{
		{Operation: "b", Occurrence: 1, Checksum: 0},
		{Operation: a.Name(), Occurrence: 1, Checksum: 7},
		{Operation: "b", Occurrence: 2, Checksum: 1},
		{Operation: "b", Occurrence: 3, Checksum: 2},
		{Operation: a.Name(), Occurrence: 3, Checksum: 7},
	}, got)
	require.Equal(t, "0000000000000007", attrs(r.named(a.Name())[0])["gpu.output.checksum"].AsString())
	require.NotContains(t, attrs(r.named(a.Name())[1]), "gpu.output.checksum")
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
	require.EqualError(t, r.errs[0], "gpuspan: cannot write the log of outputs: disk full")
	require.Len(t, r.named("op"), 3)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }
