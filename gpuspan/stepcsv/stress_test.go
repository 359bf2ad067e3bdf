// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv_test

import (
	"context"
	"encoding/csv"
	"math/big"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/stepcsv"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// End to end: steps with phases on two streams that overlap, extend past the step, or are stated by
// the caller, exported as spans through the SDK into the file.
func TestEveryRowOfARandomRunAddsUp(t *testing.T) {
	const steps = 600
	var undeclared error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { undeclared = err }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	path := filepath.Join(t.TempDir(), "steps.csv")
	e, err := stepcsv.NewExporter(path, stepcsv.WithPhases("eval", "never"))
	require.NoError(t, err)
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewSimpleSpanProcessor(e)))
	clock := simgpu.NewManualClock(time.Unix(1_700_000_000, 0))
	clock.SetStep(20 * time.Nanosecond)
	gpu := simgpu.New(clock)
	set := settings.Default()
	set.Slots = 8192
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp), gpuspan.WithSettings(func(s *settings.Settings) { *s = set }),
		gpuspan.WithErrorHandler(func(err error) { require.NoError(t, err) }))
	require.NoError(t, err)
	main, side := gpu.Stream(0), gpu.Stream(0)
	stream, comm := prof.Stream(main, "main"), prof.Stream(side, "comm")

	r := rand.New(rand.NewPCG(3, 5))
	some := func() time.Duration { return time.Duration(r.Int64N(2_000_000)) }
	phases := []train.Phase{train.Data, train.Forward, train.Backward, train.Optimizer, train.Comm, "eval", "undeclared"}
	for _, step := range train.NewLoop(prof, "train", stream, train.TotalSteps(steps)).Steps(context.Background()) {
		start := clock.Now()
		for range r.IntN(7) {
			ph := phases[r.IntN(len(phases))]
			switch r.IntN(5) {
			case 0, 1:
				x := step.Phase(ph)
				gpu.Launch(main, simgpu.Kernel{Duration: some()})
				x.End()
			case 2:
				x := step.PhaseOn(ph, comm)
				gpu.Launch(side, simgpu.Kernel{Duration: some()})
				x.End()
			case 3:
				step.AddPhase(ph, some())
			case 4:
				step.AddPhaseAt(ph, start.Add(some()-time.Millisecond), some())
			}
			if r.IntN(20) == 0 {
				step.SetPhase(ph, some())
			}
		}
		step.SetItems(r.Int64N(3))
		clock.Advance(some())
	}
	clock.Advance(time.Minute) // the device is behind
	require.NoError(t, prof.Shutdown(context.Background()))
	require.NoError(t, tp.Shutdown(context.Background()))

	records, err := csv.NewReader(strings.NewReader(content(t, path))).ReadAll()
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(strings.Join(records[0], ","), ",ips_step,t_eval_ms,t_never_ms"))
	require.Equal(t, steps+1, len(records))
	overlapped, seen := 0, map[string]bool{}
	for _, row := range records[1:] {
		at := map[string]*big.Rat{}
		for k, name := range records[0] {
			v, ok := new(big.Rat).SetString("0" + row[k]) // an empty field is 0
			require.True(t, ok, "step %s: %s is %q", row[0], name, row[k])
			require.GreaterOrEqual(t, v.Sign(), 0, name)
			at[name] = v
		}
		// rows are written as steps are read back, in any order
		require.False(t, seen[row[0]], "step %s has a row already", row[0])
		seen[row[0]] = true
		sum := new(big.Rat)
		for name, v := range at {
			switch {
			case name == "t_overlap_ms":
				sum.Sub(sum, v)
			case name != "t_step_ms" && strings.HasPrefix(name, "t_"):
				sum.Add(sum, v)
			}
		}
		require.Zero(t, sum.Cmp(at["t_step_ms"]), "step %s is %s", row[0], strings.Join(row, ","))
		overlapped += at["t_overlap_ms"].Sign()
		require.Empty(t, row[len(row)-1])
	}
	require.Greater(t, overlapped, steps/4, "the run is wild")
	require.ErrorContains(t, undeclared, `of phases without a column is in t_misc_ms: one of ["undeclared`)
}
