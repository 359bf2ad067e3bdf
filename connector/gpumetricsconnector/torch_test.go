// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
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

// parallelJob is a job of real PyTorch on the CPU in which some ranks are late in each step.
type parallelJob struct {
	kind  string
	ranks int
	slow  []int
	phase string
	delay float64 // s
	// jitter is the relative noise of the ranks' own times in virtual time; negative: real time.
	jitter float64
}

func (j parallelJob) String() string {
	return fmt.Sprintf("%s of %d, ranks %v late by %g ms in %s", j.kind, j.ranks, j.slow, j.delay*1000, j.phase)
}

const parallelSteps, parallelWarmUp = 60, 5

// parallelResult counts steps of ranks. The ranks' own log of arrivals decides which ranks were
// late, because on a busy machine more ranks than planned are late.
type parallelResult struct {
	// late as planned and the latest; found; in the right phase; with the right delay, within noise
	late, found, inPhase, right int
	punctual, wrong             int // not late; found nevertheless
	disturbed, named            int // late although not planned; found
}

func (r *parallelResult) add(x parallelResult) {
	r.late, r.found, r.inPhase, r.right = r.late+x.late, r.found+x.found, r.inPhase+x.inPhase, r.right+x.right
	r.punctual, r.wrong = r.punctual+x.punctual, r.wrong+x.wrong
	r.disturbed, r.named = r.disturbed+x.disturbed, r.named+x.named
}

func (r parallelResult) String() string {
	return fmt.Sprintf("found %d of %d (phase right %d, delay %d); wrong %d of %d; named %d of %d that the machine delayed",
		r.found, r.late, r.inPhase, r.right, r.wrong, r.punctual, r.named, r.disturbed)
}

func (j parallelJob) run(t *testing.T, python string) parallelResult {
	t.Helper()
	dir := t.TempDir()
	program, err := filepath.Abs("../../python/tests/parallel.py")
	require.NoError(t, err)
	var slow []string
	for _, r := range j.slow {
		slow = append(slow, strconv.Itoa(r))
	}
	args := []string{
		"-m", "torch.distributed.run", "--standalone", "--nproc-per-node", strconv.Itoa(j.ranks), program, j.kind,
		strings.Join(slow, ","), j.phase, fmt.Sprint(j.delay), strconv.Itoa(parallelSteps), dir,
	}
	if j.jitter >= 0 {
		args = append(args, fmt.Sprint(j.jitter))
	}
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return j.judge(t, dir)
}

// judge compares the connector's findings for a job's spans with the log of the ranks.
func (j parallelJob) judge(t *testing.T, dir string) (r parallelResult) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "own.json"))
	require.NoError(t, err)
	var own [][]float64 // by rank and step, s
	require.NoError(t, json.Unmarshal(data, &own))
	require.Len(t, own, j.ranks)

	a := newTest(t, func(c *Config) { c.Stragglers.Get().everySteps = 0 }) // the default
	a.jobs.spans = true
	for rank := range j.ranks {
		packed, err := os.Open(filepath.Join(dir, fmt.Sprint(rank, ".pb.gz")))
		require.NoError(t, err)
		unpacked, err := gzip.NewReader(packed)
		require.NoError(t, err)
		data, err := io.ReadAll(unpacked)
		require.NoError(t, err)
		require.NoError(t, packed.Close())
		td, err := new(ptrace.ProtoUnmarshaler).UnmarshalTraces(data)
		require.NoError(t, err)
		a.take(td, clock)
	}
	output(t, a, clock)
	assert.Zero(t, a.stats.uncompared, "every step is compared")
	found := map[[2]int]*reported{}
	for _, f := range a.findings() {
		found[[2]int{int(f.Rank), int(f.index)}] = f
	}
	for i := parallelWarmUp; i < parallelSteps; i++ {
		step := make([]float64, j.ranks)
		for rank := range step {
			step[rank] = own[rank][i]
		}
		slices.Sort(step)
		usual, latest := step[(j.ranks-1)/2], 0.0 // of the ranks that are not planned to be late
		for rank := range own {
			if !slices.Contains(j.slow, rank) {
				latest = max(latest, own[rank][i])
			}
		}
		for rank := range own {
			delay, f := own[rank][i]-usual, found[[2]int{rank, i + 1}]
			isLate := delay > 0.05*usual // as in the rule
			switch planned := slices.Contains(j.slow, rank); {
			case planned && (delay < j.delay/2 || own[rank][i] < latest): // the machine delayed others more
			case planned:
				r.late++
				if f != nil {
					r.found++
				}
				if f != nil && (f.Phase == j.phase || strings.HasPrefix(f.Section, j.phase)) {
					r.inPhase++
					if math.Abs(f.Delay-j.delay) <= max(0.2*j.delay, 0.003) {
						r.right++
					}
				}
			case !isLate:
				r.punctual++
				if f != nil {
					r.wrong++
				}
			default:
				r.disturbed++
				if f != nil {
					r.named++
				}
			}
		}
	}
	return r
}

// The jobs were recorded in real time on 2 busy cores by
//
//	torchrun --standalone --nproc-per-node RANKS python/tests/parallel.py KIND 1 PHASE 0.03 60 FOLDER
func TestStragglersOfRecordedTorchAreNamed(t *testing.T) {
	for dir, j := range map[string]parallelJob{
		"ddp-2": {"ddp", 2, []int{1}, "backward", 0.03, -1}, "ddp-4": {"ddp", 4, []int{1}, "data", 0.03, -1},
		"fsdp-2": {"fsdp", 2, []int{1}, "forward", 0.03, -1}, "fsdp-4": {"fsdp", 4, []int{1}, "optimizer", 0.03, -1},
		"hf-2": {"hf", 2, []int{1}, "data", 0.03, -1}, "hf-4": {"hf", 4, []int{1}, "backward", 0.03, -1},
		"healthy-ddp-4": {"ddp", 4, nil, "", 0, -1}, "healthy-hf-2": {"hf", 2, nil, "", 0, -1},
	} {
		r := j.judge(t, filepath.Join("testdata", "torch", dir))
		t.Logf("%s: %s", dir, r)
		assert.Equal(t, len(j.slow) > 0, r.late > 30, dir)
		assert.GreaterOrEqual(t, r.found, r.late*95/100, dir)
		assert.LessOrEqual(t, r.wrong+r.named, (r.punctual+r.disturbed)*2/100, dir)
	}
}

// In virtual time, late ranks, delays and noise are known exactly.
func TestStragglersOfRealTorchAreNamed(t *testing.T) {
	python := os.Getenv("OTELGPU_TORCH")
	if python == "" {
		t.Skip("no Python with PyTorch and the OpenTelemetry SDK: set OTELGPU_TORCH")
	}
	jobs := []parallelJob{
		{"dp_pp", 4, []int{1}, "forward", 0.01, 0.05},
		{"fsdp", 2, []int{1}, "backward", 0.01, 0.05},
		{"hf", 2, []int{1}, "data", 0.01, 0.05},
	}
	table := os.Getenv("OTELGPU_STRAGGLER_TABLE") // virtual or real: a quarter of an hour
	if table != "" {
		jobs = nil
		for _, kind := range []string{"ddp", "fsdp", "hf", "tp", "pp", "dp_tp", "dp_pp"} {
			for d, delay := range []float64{0.005, 0.02, 0.05} {
				for i, ranks := range []int{2, 4, 8} {
					if ranks == 2 && strings.HasPrefix(kind, "dp_") {
						continue
					}
					phase := []string{"data", "forward", "backward", "optimizer"}[(i+d+1)%4]
					slow := []int{1}
					if ranks == 8 {
						slow = []int{1, 6}
					}
					jitter := 0.05
					if table == "real" {
						jitter = -1
					}
					jobs = append(jobs, parallelJob{kind, ranks, slow, phase, delay, jitter})
				}
			}
		}
	}
	sums := map[string]*parallelResult{}
	trainer := exec.CommandContext(t.Context(), python, "-c", "import accelerate, transformers").Run() == nil
	for _, j := range jobs {
		if j.kind == "hf" && !trainer {
			t.Logf("%s: Transformers is not installed", j)
			continue
		}
		r := j.run(t, python)
		t.Logf("%s: %s", j, r)
		key := fmt.Sprintf("%s, %g ms", j.kind, j.delay*1000)
		if sums[key] == nil {
			sums[key] = &parallelResult{}
		}
		sums[key].add(r)
		switch {
		case j.jitter < 0:
		case j.kind == "pp" && j.delay < 0.05*0.015*float64(j.ranks): // all stages run one after the other
			t.Logf("%s: less than 5 %% of the step, as is not reported", j)
			assert.LessOrEqual(t, r.wrong, r.punctual/100, j)
		default:
			assert.GreaterOrEqual(t, r.inPhase, r.late*95/100, j)
			assert.GreaterOrEqual(t, r.right, r.late*95/100, j)
			assert.LessOrEqual(t, r.wrong, r.punctual/100, j)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		t.Logf("%s: %s", key, sums[key])
	}
}
