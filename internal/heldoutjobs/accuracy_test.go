// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"context"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

var update = flag.Bool("update", false, "write docs/simulated-jobs.md; needs OTELGPU_ALL_JOBS")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheSimulationImportsNothingOfTheAnalysis(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "accuracy_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range f.Imports {
			assert.NotContains(t, i.Path.Value, "otelgpu", name)
		}
	}
}

type outcome struct {
	kind  *Kind
	style Style
	job   Job
	found string
	gain  time.Duration
}

func (o *outcome) right() bool { return slices.Contains(o.job.Want, o.found) }

func (o *outcome) judged() bool { return o.kind.Gain && o.found == o.kind.want[0] }

func (o *outcome) off() float64 {
	return math.Abs(o.gain.Seconds()-o.job.Loss.Seconds()) / o.job.Loss.Seconds()
}

func analyze(t *testing.T, k *Kind, style Style, seed uint64) outcome {
	t.Helper()
	job, err := k.Run(t.Context(), t.TempDir(), style, seed)
	require.NoError(t, err)
	var devices []facts.Report
	none := func(context.Context, ptrace.Traces) error { return nil }
	if style == Nsight {
		st, err := nsysreceiver.ReadFile(t.Context(), job.Path, nsysreceiver.Options{Detail: kinetoreceiver.DetailSteps}, none)
		require.NoError(t, err, k.Name)
		require.Empty(t, st.Skipped, k.Name)
		devices = st.Devices
	} else {
		st, err := kinetoreceiver.ReadFile(t.Context(), job.Path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailSteps}, none)
		require.NoError(t, err, k.Name)
		require.Empty(t, st.Skipped, k.Name)
		devices = st.Devices
	}
	require.NoError(t, os.Remove(job.Path))
	require.Len(t, devices, 1, k.Name)
	o := outcome{kind: k, style: style, job: job}
	if k.want[0] != Healthy {
		part := job.Loss.Seconds() / devices[0].Window.Seconds()
		assert.Greater(t, part, 0.02, "the cause costs little: %s", k.Name)
		if k.Gain && part < semconv.FindingHealthyThreshold {
			o.job.Want = append(slices.Clone(o.job.Want), Healthy) // below what is worth a finding
		}
	} else {
		assert.Less(t, job.Loss.Abs().Seconds()/devices[0].Window.Seconds(), 0.05, k.Name)
	}
	assert.Greater(t, job.Busy, 0.8, "the twin has another loss: %s", k.Name)
	require.NotEmpty(t, devices[0].Findings, k.Name)
	o.found, o.gain = devices[0].Findings[0].Kind, devices[0].Findings[0].Gain
	return o
}

// Seeds of the full set and of the sample; their jobs were never used to change the analysis.
const (
	fullSeed, sampleSeed = 9100, 9200
	repeats              = 3
	tolerance            = 0.15 // of gains
	aim                  = 0.95
)

// A sample of each kind in one style, Nsight only with -tags sqlite; with OTELGPU_ALL_JOBS each
// kind in all styles, several times, which takes minutes and also compares the page of the
// documentation. With -short, as under the race detector, no job is analyzed: the rates of a
// smaller sample would be meaningless.
func TestFirstFindingsOfHeldOutJobs(t *testing.T) {
	all := os.Getenv("OTELGPU_ALL_JOBS") != ""
	if testing.Short() && !all {
		t.Skip("one goroutine: the race detector only makes it slow")
	}
	require.True(t, sqlitetest.Available() || !all, "all jobs need -tags sqlite")
	kinds := Kinds()
	require.GreaterOrEqual(t, len(kinds), 60)
	var list []outcome
	for i := range kinds {
		k := &kinds[i]
		styles := slices.DeleteFunc(Styles(), func(s Style) bool {
			return !k.In(s) || s == Nsight && !sqlitetest.Available()
		})
		if len(styles) == 0 {
			continue
		}
		if !all {
			list = append(list, analyze(t, k, styles[i%len(styles)], sampleSeed))
			continue
		}
		for _, style := range styles {
			for n := range uint64(repeats) {
				list = append(list, analyze(t, k, style, fullSeed+n))
			}
		}
	}
	c := tally(list)
	t.Log(c.summary + "\n" + strings.Join(append(c.misses, c.wrong...), "\n"))
	assert.GreaterOrEqual(t, float64(len(list)-len(c.misses))/float64(len(list)), aim)
	assert.GreaterOrEqual(t, float64(c.gains-len(c.wrong))/float64(c.gains), aim)
	if !all {
		return
	}
	unseen := tally(slices.DeleteFunc(slices.Clone(list), func(o outcome) bool { return o.kind.unseen == nil }))
	for kind, r := range c.rows {
		assert.GreaterOrEqual(t, r.precision(), aim, kind)
		assert.GreaterOrEqual(t, r.recall(), aim, kind)
	}
	page := c.page(len(kinds), unseen.summary)
	const path = "../../docs/simulated-jobs.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o644)) //nolint:gosec // a document
	}
	was, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(was), page, "write it again with -update")
}

// row counts the jobs whose true cause is a finding, the jobs where it is the first finding, and
// how many of the latter are right.
type row struct{ planted, found, right int }

func share(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

func (r *row) precision() float64 { return share(r.right, r.found) }
func (r *row) recall() float64    { return share(r.right, r.planted) }

type confusion struct {
	summary       string
	rows          map[string]*row
	gains         int
	misses, wrong []string
}

func tally(list []outcome) confusion {
	c := confusion{rows: map[string]*row{}}
	at := func(kind string) *row {
		if c.rows[kind] == nil {
			c.rows[kind] = &row{}
		}
		return c.rows[kind]
	}
	ranks := 0
	for i := range list {
		o := &list[i]
		if o.job.Ranks > 1 {
			ranks++
		}
		want := o.job.Want[0]
		if o.right() {
			want = o.found
			at(want).right++
		} else {
			c.misses = append(c.misses, fmt.Sprintf("%s, %s: `%s` instead of `%s`", o.kind.Name, o.style, o.found, want))
		}
		at(want).planted++
		at(o.found).found++
		if !o.judged() {
			continue
		}
		c.gains++
		if o.off() > tolerance {
			c.wrong = append(c.wrong, fmt.Sprintf("%s, %s: %s instead of %s", o.kind.Name, o.style,
				finding.Duration(o.gain), finding.Duration(o.job.Loss)))
		}
	}
	n := len(list)
	c.summary = fmt.Sprintf("The first finding is right for %d of %d jobs (%.1f %%), %d of them of several ranks. Its gain is "+
		"within %.0f %% of the loss\nfor %d of the %d right findings whose loss is known in wall time.", n-len(c.misses), n,
		100*share(n-len(c.misses), n), ranks, 100*tolerance, c.gains-len(c.wrong), c.gains)
	return c
}

func (c *confusion) page(kinds int, unseen string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Simulated jobs

Package [heldoutjobs](../internal/heldoutjobs) simulates %d kinds of jobs of 1 to 64 ranks with one planted cause, two or
none, and writes their profiles in four styles: PyTorch with frames and shapes, an older PyTorch (whole microseconds,
neither frames, shapes nor process groups), Nsight Systems without operators, and rocprofv3. Devices, models, causes' sizes and
names are drawn from a seed. The loss is the difference to the same job without the cause. The package imports nothing
of the analysis. The rules in the table were adjusted to these jobs; the first contacts show how they meet unknown ones.

%s

If a style does not record the cause, the expected finding is what can be known: `+"`host_work`"+` without a name, or
`+"`not_judged`"+`. At first contact 759 of 789 jobs were right: 12 misses led to changes of rules, the others to changes of
jobs whose healthy twin had a loss or whose cause cost too little.

%d kinds were written later: 111 of their first 117 jobs were right (94.9 %%), and 74 of 75 gains. Precision was 1.00 for each finding
except `+"`healthy` (0.90) and `not_judged` (0.75)"+`; recall was 1.00 except for `+"`tail_wave`"+`, missed in all six of its jobs, whose files lacked
shapes and the shared memory of a multiprocessor. Both the rule and these jobs were changed. A loss below 5 %% may be `+"`healthy`"+`.

Another %d kinds of seven areas (fine-tuning, diffusion, graph networks, reinforcement learning, a solver, serving, data
parallel training) come from a second simulation that shares no code with the first one. They were written before the
rules were read, with names from the libraries of each area. **First contact**: 190 of 210 jobs right (90.5 %%), 90 of 109
gains. Of the 20 misses, 3 were faults and led to changes: a server's empty queue was taken for a loader (1), and transfers that a
late rank pushes out from under the computation were taken for slow communication (2); so did one gain, which a numbered annotation split.
The other 17 were changes of jobs: a cause below the documented threshold or hidden by the queue (8), work that has no shapes to judge
it by (2), and unnamed work of less than 2 ms after a wait, which no file tells from launching (7). **After these changes**,
with other seeds: %s

## Recordings of later kinds

%d kinds of recordings come from a third simulation (processes with several threads, merged, truncated and incomplete files, folders of ranks). They
were written before the rules were read, from what is publicly known about profilers and slow jobs; the finding and, where the file has
Python frames, the function or rank that it must name were written down first. **First contact**: 91 of 109 recordings right (83.5 %%). Of the
18 misses, 7 were faults and led to changes: an H100 that became slower was not seen without shapes (1), a step with far more work was
`+"`healthy`"+` (2), a frame of `+"`barrier`"+` was `+"`host_work`"+` (1), work in NumPy and in an environment was not named by the user's function (2), and a merged file was
not compared as a job (1).
The others were changes of jobs: files without shapes, whose efficiency is `+"`not_judged`"+` as documented (6), launches without kernels that were
meant to be slow calls (3), products in double precision at less than half of the device's peak, which is `+"`low_efficiency`"+` (2). **After these changes**,
with other seeds, and with %d kinds of loops in graphs that were added then: all are right.

%d kinds of programs were added last, after the rules were read. At first contact 18 of 19 were right; the other is not in the set: kernels that
Triton's autotuner tries out are launched by no operator, and were not recognized as `+"`autotuning`"+`. In a file with Python frames, they are now.

## Held out until they were run

99 kinds of jobs in three variants (training, serving, solvers and nine kinds of folders of ranks; PyTorch's files of two versions, Nsight
Systems, rocprofv3, Proton, ONNX Runtime) come from a fourth simulation, [freshjobs](../internal/freshjobs). Its author had read the names of the kinds of
findings and no rule. The findings that are right were committed before the first run, and nobody saw a result before both runs. A cause
costs 15 to 76 %% of the time. **First contact**: 269 of 297 right (90.6 %%) by the rules that were there, and 274 (92.3 %%) by general rules that
were written meanwhile without these jobs. Nine misses had one cause: a file of rocprofv3 whose names follow the records that use them was not
read right. Without them, the rates are 278 (93.6 %%) and 283 (95.3 %%; 257 of 270 files, 26 of 27 folders). The other 14 misses:
configurations that Triton tries out (3), FlashInfer's attention taken for data movement (3), a server's queue taken for a loader (3),
pages that migrate within a kernel (3), the step of an environment counted in the wait before it (1), and a late rank by chance (1). **After changes** of
the rules: 291 of 297 (98.0 %%). JSON is read in any order of its keys, frames that measure kernels are `+"`autotuning`"+`, a queue is a loader only in a program that
trains, and a launch that begins 1 ns before the end of an operator is not part of it. The simulation had marked the pages as moved on the program's
request, which is no fault: marked as touched by a kernel, they are found, and 294 of 297 are right (99.0 %%). The remaining
misses are kept in the tests.

10 programs of JAX in three variants and 15 folders of four hosts (XPlane; every third variant without the Python tracer) were written later, with the
findings committed before the first run. **First contact**: 42 of 45 right (93.3 %%; 27 of 30 files, 15 of 15 folders). The misses had one cause: fusions of XLA
that transpose were not taken for data movement. **After that change**, all are right. Names and arrangement of the host's rows follow public files of JAX.

## Development set

Unlike the sets above, these jobs were made to adjust the rules, and their rate says nothing about unknown jobs: 300 jobs, drawn from one of
31 causes or none, of 15 to 65 %% of the window, a second cause of 5 to 8 %% in half of them, four programs and ten formats. The truth is
what the job without the cause would save. At first 536 of 600 such jobs were right (89.3 %%; a third of the misses were errors of the generator). Then marks
of checkpoints, compilation and waits for ranks became words instead of names, 0.7 ms without a record after a wait became host work, kernels without shapes
and steps were compared with those after the same kernels, and kernels with few blocks count by what they leave empty: 298 of 300 are right.

## Folders of ranks

Package [rankfolders](../internal/rankfolders) simulates jobs of 2 to 128 ranks, 3 to 50 steps and five kinds of parallelism, 40 %% of them healthy, with normal,
lognormal, exponential noise or pauses. Rules were changed with other seeds than these (`+"`"+`OTELGPU_RANK_SEED=5000000 OTELGPU_RANK_JOBS=4000 go test
./internal/rankfolders -run Decisions -v`+"`"+`). An innocent rank was named in one of the complete jobs with a late one.

| noise of a step | complete: right | undecided | recall | false alarms | without an innocent rank: right | undecided | recall | false alarms |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
| none | 310 | 42 | 88 %% | 0 of 258 | 142 | 27 | 84 %% | 0 of 124 |
| 0.3 ms | 282 | 48 | 85 %% | 0 of 232 | 139 | 33 | 81 %% | 0 of 117 |
| 1 ms | 233 | 47 | 83 %% | 0 of 225 | 122 | 31 | 80 %% | 0 of 101 |
| 2 ms | 173 | 56 | 76 %% | 1 of 201 | 94 | 32 | 75 %% | 0 of 98 |
| 3 ms | 155 | 52 | 75 %% | 0 of 221 | 90 | 33 | 73 %% | 1 of 106 |
| all | 1153 | 245 | 82 %% | 1 of 1137 | 587 | 156 | 79 %% | 1 of 546 |

With 3 steps the recall is 64 %%, with 5, 10, 20 and 40 to 50 steps 75, 82, 94 and 98 %%. The undecided ranks are late in one step of few, which a pause of any
host explains as well. Without the late rank's own file, 58 of 101 folders blame absent ranks, rightly, 43 are undecided, and none is wrong
(`+"`"+`OTELGPU_RANK_SEED=2000000 OTELGPU_RANK_FOLDERS=500`+"`"+`, which writes and reads files); the rest is constant lateness, which looks like a slow link.

Healthy jobs with heavy noise, 2,000 of each kind (`+"`"+`OTELGPU_RANK_SEED=4500000 OTELGPU_RANK_JOBS=2000 go test ./internal/rankfolders -run HeavyNoise -v`+"`"+`),
name a rank in these shares. Before, the rule did not compare a rank with the spread of its peers, allowed 5 %% for the sum of steps and 2 standard errors between
two ranks; it found 85 and 81 %% of the late ranks above.

| noise | 2 to 128 ranks, 3 to 50 steps | before | 3 to 8 steps | before | 2 ranks | before |
|---|--:|--:|--:|--:|--:|--:|
| pauses of lognormal length (σ 1.5) in 5 %% of steps | 0.95 %% | 1.65 %% | 0.55 %% | 2.00 %% | 1.05 %% | 1.40 %% |
| one slow step of one rank | 0.40 %% | 0.60 %% | 0.05 %% | 0.30 %% | 0.30 %% | 0.90 %% |
| exponential, 1 to 20 %% of a step | | | 1.10 %% | 2.30 %% | 1.50 %% | 3.35 %% |
| another noise for each rank, up to 4 times | 0.70 %% | 0.95 %% | 0.75 %% | 1.60 %% | 0.40 %% | 1.10 %% |
| autocorrelated (0.7), σ 0.5 to 5 %% of a step | 4.15 %% | 13.85 %% | 4.65 %% | 14.00 %% | 8.10 %% | 11.75 %% |
| one slow step of all ranks | 0.15 %% | 0.45 %% | | | | |
| garbage collection every 3 to 20 steps | 0.35 %% | 0.45 %% | | | | |

Disturbances that last for steps look like a late rank if there are few peers and steps. A rule that takes all noise as autocorrelated by 0.7 until many steps show the opposite
named a rank in 1.5 to 1.9 %% of such jobs, but found 6 %% fewer late ranks than before instead of 3 %%.

`+"`OTELGPU_ALL_JOBS=1 go test -tags sqlite ./internal/heldoutjobs -update`"+` writes this page; without the variable the test runs one job of
each kind.

| finding | planted | found first | of these right | precision | recall |
|---|--:|--:|--:|--:|--:|
`, kinds, c.summary, len(laterKinds()), len(unseenKinds()), unseen, len(freshKinds()), len(graphKinds()), len(programKinds()))
	for _, kind := range slices.Sorted(maps.Keys(c.rows)) {
		r := c.rows[kind]
		fmt.Fprintf(&b, "| `%s` | %d | %d | %d | %.2f | %.2f |\n", kind, r.planted, r.found, r.right, r.precision(), r.recall())
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Misses", c.misses}, {"Gains that are off", c.wrong}} {
		fmt.Fprintf(&b, "\n## %s\n\n", part.title)
		if len(part.lines) == 0 {
			b.WriteString("None.\n")
		}
		for _, line := range part.lines {
			fmt.Fprintf(&b, "- %s\n", line)
		}
	}
	return b.String()
}
