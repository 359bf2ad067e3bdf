// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// parallelJob is a job of real PyTorch on the CPU, of which some ranks are late in each step.
type parallelJob struct {
	kind  string
	ranks int
	slow  []int
	phase string
	delay float64 // s
}

func (j parallelJob) String() string {
	return fmt.Sprintf("%s of %d, ranks %v late by %g ms in %s", j.kind, j.ranks, j.slow, j.delay*1000, j.phase)
}

const parallelSteps, parallelWarmUp = 45, 5

// run returns how many steps there were of late ranks and how many of them were found in the right phase, and the same
// of punctual ranks and how many of them were found at all.
func (j parallelJob) run(t *testing.T, python string) (late, found, punctual, wrong int) {
	t.Helper()
	dir := t.TempDir()
	program, err := filepath.Abs("../../python/tests/parallel.py")
	require.NoError(t, err)
	var slow []string
	for _, r := range j.slow {
		slow = append(slow, strconv.Itoa(r))
	}
	cmd := exec.CommandContext(t.Context(), python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
		strconv.Itoa(j.ranks), program, j.kind, strings.Join(slow, ","), j.phase, fmt.Sprint(j.delay),
		strconv.Itoa(parallelSteps), dir)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	a := newTest(t, nil)
	a.jobs.spans = true
	for rank := range j.ranks {
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(rank, ".pb")))
		require.NoError(t, err)
		td, err := new(ptrace.ProtoUnmarshaler).UnmarshalTraces(data)
		require.NoError(t, err)
		a.take(td, clock)
	}
	output(t, a, clock)
	assert.Zero(t, a.stats.uncompared, "every step is compared")
	for _, f := range a.findings() {
		switch {
		case f.index <= parallelWarmUp:
		case !slices.Contains(j.slow, int(f.Rank)):
			wrong++
		case f.Phase == j.phase || strings.HasPrefix(f.Section, j.phase):
			found++
		}
	}
	steps := parallelSteps - parallelWarmUp
	return steps * len(j.slow), found, steps * (j.ranks - len(j.slow)), wrong
}

func TestStragglersOfRealTorchAreNamed(t *testing.T) {
	python := os.Getenv("OTELGPU_TORCH")
	if python == "" {
		t.Skip("no Python with PyTorch and the OpenTelemetry SDK: set OTELGPU_TORCH")
	}
	jobs := []parallelJob{{"dp_pp", 4, []int{1}, "forward", 0.05}, {"dp_tp", 4, []int{2}, "backward", 0.05}}
	all := os.Getenv("OTELGPU_STRAGGLER_TABLE") != ""
	if all { // minutes
		jobs = nil
		for _, kind := range []string{"ddp", "fsdp", "tp", "pp", "dp_tp", "dp_pp"} {
			for _, delay := range []float64{0.005, 0.02, 0.05} {
				for i, ranks := range []int{2, 4, 8} {
					if ranks == 2 && strings.HasPrefix(kind, "dp_") {
						continue
					}
					phase := []string{"data", "forward", "backward", "optimizer"}[(i+int(delay*200))%4]
					slow := []int{1}
					if ranks == 8 {
						slow = []int{1, 6}
					}
					jobs = append(jobs, parallelJob{kind, ranks, slow, phase, delay})
				}
			}
		}
	}
	for _, j := range jobs {
		late, found, punctual, wrong := j.run(t, python)
		t.Logf("%s: found in %d of %d steps, others in %d of %d", j, found, late, wrong, punctual)
		if !all { // what other programs on the machine do delays ranks, too
			assert.GreaterOrEqual(t, found, late*9/10, j)
			assert.LessOrEqual(t, wrong, max(1, punctual/20), j)
		}
	}
}
