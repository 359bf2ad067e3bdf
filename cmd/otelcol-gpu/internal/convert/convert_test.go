// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor"
	"github.com/otelgpu/otelgpu/semconv"
)

func components() (otelcol.Factories, error) {
	f := otelcol.Factories{Telemetry: otelconftelemetry.NewFactory(), Receivers: map[component.Type]receiver.Factory{}}
	var err error
	if f.Processors, err = otelcol.MakeFactoryMap[processor.Factory](gpuderiveprocessor.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](fileexporter.NewFactory(),
		chrometraceexporter.NewFactory())
	return f, err
}

// kernels returns n kernels, of a rank unless it is negative.
func kernels(name string, n int, rank int64) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	if rank >= 0 {
		rs.Resource().Attributes().PutInt("gpu.job.rank", rank)
		rs.Resource().Attributes().PutInt("gpu.job.world_size", 2)
	}
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	for i := range n {
		s := spans.AppendEmpty()
		s.SetName(name)
		s.SetTraceID([16]byte{1, byte(rank)})
		s.SetSpanID([8]byte{2, byte(i)})
		s.SetStartTimestamp(pcommon.Timestamp(1_700_000_000_000_000_000 + i*1000))
		s.SetEndTimestamp(s.StartTimestamp() + 900)
		s.Attributes().PutStr("gpu.operation.type", "kernel")
	}
	return td
}

// observe passes n kernels to the observer of a file.
func observe(ctx context.Context, name string, n int, to Outputs) error {
	p := profiletrace.New(profiletrace.Options{Observe: to.Observe}, profiletrace.Source{Service: "test"})
	defer p.Close()
	p.Meta.Base = 1_700_000_000_000_000_000
	for i := range int64(n) {
		e := event.Event{Kind: event.KindKernel, Start: 1000 * i, Duration: 900, Name: p.Names.ID(name)}
		if err := p.Add(&e); err != nil {
			return err
		}
	}
	_, err := p.Emit(ctx, func(context.Context, ptrace.Traces) error { return nil })
	return err
}

var seed = maphash.MakeSeed()

// run converts files whose content controls the reader.
func run(t *testing.T, out string, files map[string]string, change func(*Options)) (stdout, stderr string, err error) {
	t.Helper()
	dir := t.TempDir()
	o := Options{Out: out, Factories: components, Files: []string{dir}}
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	o.Reader = func(ctx context.Context, path string, to Outputs) (Result, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return Result{}, err
		}
		base := strings.TrimSuffix(filepath.Base(path), ".json")
		switch {
		case strings.HasPrefix(string(text), "broken"):
			return Result{}, fmt.Errorf("cannot read %q: it is broken", path)
		case strings.HasPrefix(string(text), "empty"):
			return Result{Remarks: []string{"nothing of use"}}, nil
		}
		if err := to.Accept(event.Identity{maphash.Bytes(seed, text)}); err != nil {
			return Result{}, err
		}
		rank := int64(-1)
		if strings.HasPrefix(base, "rank") {
			rank = int64(base[4] - '0')
		}
		every := kernels("every "+base, len(text), rank)
		if err := observe(ctx, "every "+base, len(text), to); err != nil {
			return Result{}, err
		}
		if to.All == nil {
			return Result{Spans: int64(len(text))}, to.Files(ctx, every)
		}
		return Result{
			Spans: 1, Cut: int64(len(text) - 1), Partial: strings.HasSuffix(string(text), "cut"),
			Remarks: []string{"all of " + base},
		}, errors.Join(to.Files(ctx, kernels("one of "+base, 1, -1)), to.All(ctx, every))
	}
	if change != nil {
		change(&o)
	}
	var a, b bytes.Buffer
	err = Run(t.Context(), &a, &b, o)
	return a.String(), b.String(), err
}

func read(t *testing.T, out, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, name))
	require.NoError(t, err)
	return string(text)
}

func TestSpansAreAtTheDetailAndTheTraceAndTableAreComplete(t *testing.T) {
	out := t.TempDir()
	stdout, stderr, err := run(t, out, map[string]string{"a.json": "1234"}, nil)
	require.NoError(t, err, stderr)
	spans, trace := read(t, out, "spans.json"), read(t, out, "trace.json")
	assert.Equal(t, 1, strings.Count(spans, `"one of a"`))
	assert.NotContains(t, spans, "every a")
	assert.Equal(t, 4, strings.Count(trace, `"name":"every a"`))
	assert.Contains(t, stdout, "1 spans (3 more are summed on them: --detail kernels shows all)\n    all of a")
	assert.Regexp(t, `\na +kernel +4 `, stdout, "the short name of a kernel")

	_, _, err = run(t, out, map[string]string{"a.json": "1234"}, func(o *Options) { o.Full = true })
	require.NoError(t, err)
	assert.Equal(t, 4, strings.Count(read(t, out, "spans.json"), `"every a"`), "read once, for both")
}

func TestFilesThatFailAreNamedAndTheOthersConverted(t *testing.T) {
	out := t.TempDir()
	stdout, stderr, err := run(t, out, map[string]string{
		"a.json": "12", "b.json": "broken", "c/d.json": "empty", "e.txt": "no profile",
	}, nil)
	require.ErrorIs(t, err, ErrSomeFailed)
	assert.Contains(t, stderr, "it is broken")
	assert.Regexp(t, `cannot use ".*d\.json": it has no device activity[^\n]*\n +nothing of use`, stderr)
	assert.NotContains(t, stderr+stdout, "e.txt")
	assert.Contains(t, read(t, out, "trace.json"), "every a")

	_, stderr, err = run(t, out, map[string]string{"a.json": "12 cut"}, nil)
	require.ErrorIs(t, err, ErrSomePartial)
	assert.Contains(t, stderr, "could be read only in part")

	_, _, err = run(t, out, map[string]string{"b.json": "broken"}, nil)
	require.ErrorIs(t, err, ErrSomeFailed)
	assert.Contains(t, read(t, out, "trace.json"), "every a", "a run without a result keeps the earlier run's results")

	entries, err := os.ReadDir(out)
	require.NoError(t, err)
	assert.Len(t, entries, 3, "no temporary folder is left")
}

func TestProfileWithTwoNamesCountsOnce(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	again := filepath.Join(dir, "again.json")
	require.NoError(t, os.WriteFile(again, []byte("12345"), 0o600))
	stdout, stderr, err := run(t, out, map[string]string{"a.json": "12345"}, func(o *Options) {
		o.Files = append(o.Files, again)
	})
	require.NoError(t, err, stderr)
	assert.Contains(t, stdout, "skipped, because it is the same profile as ")
	assert.Equal(t, 5, strings.Count(read(t, out, "trace.json"), `"name":"every a"`))
}

// A write error is not the fault of a profile: the run ends with an error that names the result.
func TestResultsThatCannotBeWrittenEndTheRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, _, err := run(t, filepath.Join(file, "below"), map[string]string{"a.json": "1"}, nil)
	require.ErrorContains(t, err, "cannot create the output directory")

	_, stderr, err := run(t, filepath.Join(dir, "out"), map[string]string{"a.json": "1", "b.json": "2"}, func(o *Options) {
		o.Reader = func(ctx context.Context, _ string, to Outputs) (Result, error) {
			_ = to.Files(ctx, kernels("k", 1, -1))
			return Result{}, errors.New("the reader says what the sink said")
		}
	})
	require.ErrorIs(t, err, ErrSomeFailed, "what a reader says of a file is of the file")
	assert.Equal(t, 2, strings.Count(stderr, "the reader says"))

	r, err := newResults(filepath.Join(dir, "out"))
	require.NoError(t, err)
	defer r.remove()
	named := r.named(fmt.Errorf("write %s: no space left", r.temporary(spansFile)))
	assert.EqualError(t, named, "write "+filepath.Join(dir, "out", spansFile)+": no space left")
}

func TestAFailedRunLeavesNoFolderThatItCreated(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	fail := func(o *Options) {
		o.Reader = func(context.Context, string, Outputs) (Result, error) {
			return Result{}, errors.New("no profile")
		}
	}
	_, _, err := run(t, out, map[string]string{"a.json": "1"}, fail)
	require.Error(t, err)
	require.NoDirExists(t, out)

	require.NoError(t, os.Mkdir(out, 0o755))
	_, _, err = run(t, out, map[string]string{"a.json": "1"}, fail)
	require.Error(t, err)
	require.DirExists(t, out, "it is the user's")
}

func TestARunThatIsInterruptedStatesWhereAndChangesNothing(t *testing.T) {
	out := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	err := Run(ctx, &stdout, &stderr, Options{
		Out: out, Process: "pid 7", Factories: components,
		Reader: func(context.Context, string, Outputs) (Result, error) {
			cancel()
			return Result{}, context.Canceled
		},
	})
	require.ErrorContains(t, err, "interrupted in pid 7")
	entries, err := os.ReadDir(out)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestFoldersMeanTheProfilesBelow(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "b", "results")
	for _, name := range []string{"z.json", "b/a.json.gz", "b/results/trace.json", "b/notes.md", "none/readme.md"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	missing := filepath.Join(dir, "missing.json")
	files, refused := expand([]string{missing, dir, filepath.Join(dir, "none")}, out)
	assert.Equal(t, []string{missing, filepath.Join(dir, "b", "a.json.gz"), filepath.Join(dir, "z.json")}, files,
		"by name, without earlier results; what is missing is the reader's to say")
	require.Len(t, refused, 1)
	assert.ErrorContains(t, refused[0], "no profile in "+fmt.Sprintf("%q", filepath.Join(dir, "none")))
}

func TestTextsOfJobsAreEscaped(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, renderJobs(&b, []jobs.Job{{Says: "rank \x1b[2J", Ranks: []jobs.Rank{{File: "a\x1b[2J.json"}}}}, 0))
	assert.Contains(t, b.String(), "RANK")
	assert.NotContains(t, b.String(), "\x1b")
}

// A terminal of 80 columns shows a finding in at most four lines, with its gain and certainty.
func TestFindingsAreShortOnNarrowTerminals(t *testing.T) {
	v := finding.New(semconv.GPUFindingKindLaunchBound, finding.High)
	v.Subject, v.Gain, v.Share = "GPU 0", 5370*time.Microsecond, 0.412
	v.Chain = []string{
		"the host launches kernels more slowly than the device runs them", "the queue runs empty between kernels",
		"GPU 0 idle for 5.37ms, 389µs of it until launched work begins",
	}
	v.Evidence = strings.Repeat("evidence of many kinds ", 12)
	r := Result{Devices: []facts.Report{{Findings: []finding.Finding{v, v}}}}
	text := also(r, 80)
	assert.LessOrEqual(t, strings.Count(text, "\n"), 2*findingLines)
	assert.Equal(t, 2, strings.Count(strings.Join(strings.Fields(text), " "), "saves at most 5.37ms (41.2 %); certainty high; try:"))
	for line := range strings.SplitSeq(text, "\n") {
		assert.Less(t, len([]rune(line)), 80)
	}
	assert.Contains(t, also(r, 0), "evidence of many kinds")
}

// The sentence on a job begins a new paragraph with what a late rank did, and with the critical
// path.
func TestTheSentenceOnAJobHasParagraphs(t *testing.T) {
	var b strings.Builder
	says := "Rank 1 is late. Before those it has more. Critical path across the ranks: rank 1."
	require.NoError(t, renderJobs(&b, []jobs.Job{{Says: says}}, 80))
	assert.Contains(t, b.String(), "Rank 1 is late.\nBefore those it has more.\nCritical path across the ranks: rank 1.\n")
}
