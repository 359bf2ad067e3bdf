// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/semconv"
)

var (
	owner     = component.MustNewID("test")
	storageID = component.MustNewID("file_storage")
)

func TestExistingAndNewFilesAreReadOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.txt"), "b\n")
	write(t, filepath.Join(dir, "a.txt"), "a\n")
	write(t, filepath.Join(dir, "notme.txt"), "x\n")
	s := &sink{}
	f := start(t, config(dir), componenttest.NewNopHost(), s)
	defer stop(t, f)
	eventually(t, s, "ab")
	write(t, filepath.Join(dir, "deep", "c.tmp"), "c\n")
	eventually(t, s, "ab")
	require.NoError(t, os.Rename(filepath.Join(dir, "deep", "c.tmp"), filepath.Join(dir, "deep", "c.txt")))
	eventually(t, s, "abc")
}

func TestFileThatChangesIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	write(t, path, "a\n")
	s := &sink{}
	f := start(t, config(dir), componenttest.NewNopHost(), s)
	defer stop(t, f)
	eventually(t, s, "a")
	write(t, path, "b\nc\n")
	eventually(t, s, "abc")
}

func TestFileThatGrowsIsNotReadUntilItStopsGrowing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	c := config(dir)
	s := &sink{}
	f := New(c, owner, zap.NewNop(), lines, s.consume)
	f.state = newState(storage.NewNopClient())
	clock := time.Now() // shortly after the file's own times
	f.now = func() time.Time { return clock }
	const stable = 150 * time.Millisecond
	poll := func(after time.Duration) int {
		clock = clock.Add(after)
		read, refused := f.poll(t.Context(), stable)
		assert.Zero(t, refused)
		return read
	}
	text := "a\n"
	for range 10 {
		write(t, path, text)
		require.Zero(t, poll(stable-1))
		require.Zero(t, poll(stable-1), "it may grow still")
		text += "b\n"
	}
	require.Equal(t, 1, poll(1))
	assert.Equal(t, "abbbbbbbbb", s.got())
	require.Zero(t, poll(time.Hour))
}

func TestRestartNeitherLosesNorRepeats(t *testing.T) {
	dir := t.TempDir()
	h := host{map[component.ID]component.Component{storageID: &memory{}}}
	c := config(dir)
	c.Storage = &storageID
	write(t, filepath.Join(dir, "a.txt"), "a\n")
	write(t, filepath.Join(dir, "b.txt"), "b\nc\nd\ne\n")
	var f *Follower
	taken := make(chan struct{})
	s := &sink{fail: func(name string) error {
		if name == "d" { // in the middle of a file: stop while the consumer rejects batches
			select {
			case <-taken:
			default:
				close(taken)
			}
			return errors.New("busy")
		}
		return nil
	}}
	f = start(t, c, h, s)
	<-taken
	stop(t, f)
	assert.Equal(t, "abc", s.got())

	s.fail = nil
	f = start(t, c, h, s)
	eventually(t, s, "abcde")
	stop(t, f)
	f = start(t, c, h, s)
	defer stop(t, f)
	eventually(t, s, "abcde")
	write(t, filepath.Join(dir, "f.txt"), "f\n")
	eventually(t, s, "abcdef")
}

func TestConsumerErrorsAreRetriedUnlessPermanent(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.txt"), "a\nb\nc\n")
	tries := 0
	s := &sink{fail: func(name string) error {
		switch {
		case name == "a" && tries < 2:
			tries++
			return errors.New("busy")
		case name == "b":
			return consumererror.NewPermanent(errors.New("never"))
		}
		return nil
	}}
	f := start(t, config(dir), componenttest.NewNopHost(), s)
	defer stop(t, f)
	eventually(t, s, "ac")
}

func TestRefusedFileIsLoggedOnceAndOthersAreRead(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.txt"), "bad")
	write(t, filepath.Join(dir, "b.txt"), "b\n")
	core, logs := observer.New(zap.WarnLevel)
	s := &sink{}
	f := New(config(dir), owner, zap.New(core), lines, s.consume)
	require.NoError(t, f.Start(t.Context(), componenttest.NewNopHost()))
	defer stop(t, f)
	eventually(t, s, "b")
	require.Equal(t, 1, logs.Len())
	assert.Contains(t, logs.All()[0].ContextMap()["error"], "a.txt")
	write(t, filepath.Join(dir, "a.txt"), "a\n")
	eventually(t, s, "ba")
}

func TestAProfileWithoutADeviceIsLoggedWithWhereTheHostWas(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	none := noop.Int64Counter{}
	r := &Receiver{
		tel: Telemetry{Files: none, Parts: none, Skipped: none, Cut: none}, log: zap.New(core), what: "events",
	}
	r.took(t.Context(), "a.json", &profiletrace.Stats{Records: 3})
	require.Zero(t, logs.Len())
	found := &finding.Finding{
		Kind: semconv.GPUFindingKindNoDevice, Subject: "host", Chain: []string{"no device", "in forward"},
	}
	r.took(t.Context(), "b.json", &profiletrace.Stats{Records: 3, Host: found})
	require.Equal(t, 1, logs.Len())
	assert.Equal(t, "b.json", logs.All()[0].ContextMap()["file"])
	assert.Contains(t, logs.All()[0].ContextMap()["finding"], "no_device, host: no device -> in forward")
}

func TestOnceReadsExistingFilesAndEnds(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.txt"), "a\n")
	c := config(dir)
	c.Mode, c.StableFor = ModeOnce, time.Hour
	s := &sink{}
	f := start(t, c, componenttest.NewNopHost(), s)
	eventually(t, s, "a")
	write(t, filepath.Join(dir, "b.txt"), "b\n")
	eventually(t, s, "a")
	stop(t, f)
	stop(t, f)
}

func TestMissingStorageIsAnError(t *testing.T) {
	c := config(t.TempDir())
	c.Storage = &storageID
	f := New(c, owner, zap.NewNop(), lines, (&sink{}).consume)
	err := f.Start(t.Context(), componenttest.NewNopHost())
	assert.EqualError(t, err,
		"cannot find storage extension \"file_storage\" (make sure it is listed under `service::extensions`)")
	stop(t, f)
}

func TestValidateReportsEveryProblem(t *testing.T) {
	c := Config{Include: []string{"[a"}, Exclude: []string{""}, Mode: "never", StableFor: -1}
	err := c.Check()
	for _, want := range []string{
		"`include` must contain valid patterns, found \"[a\"", "`exclude` must contain valid patterns, found \"\"",
		"`mode` must be follow or once, found \"never\"", "`poll_interval` must be positive, found 0s",
		"`stable_for` must be non-negative, found -1ns",
	} {
		assert.ErrorContains(t, err, want)
	}
	empty := NewProfiles("").Files
	assert.EqualError(t, empty.Check(), "`include` must name at least one pattern, found none")
}

func TestRenamedAttributesAreNotRepeated(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name+".txt") }
	h := host{map[component.ID]component.Component{storageID: &memory{}}}
	c := config(dir)
	c.Storage = &storageID
	core, logs := observer.New(zap.InfoLevel)
	write(t, path("a"), "a\nb\n")
	s := &sink{}
	f := New(c, owner, zap.New(core), lines, s.consume)
	require.NoError(t, f.Start(t.Context(), h))
	eventually(t, s, "ab")
	left := func() int { return logs.FilterMessage("file skipped").Len() }
	repeated := func(want int) {
		t.Helper()
		require.Eventually(t, func() bool { return left() == want }, time.Minute, time.Millisecond)
		assert.Equal(t, "ab", s.got())
	}
	require.NoError(t, os.Rename(path("a"), path("renamed")))
	repeated(1)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "done"), 0o755))
	require.NoError(t, os.Rename(path("renamed"), path("done/moved")))
	repeated(2)
	require.NoError(t, os.Chtimes(path("done/moved"), time.Unix(1, 0), time.Unix(1, 0)))
	repeated(3)
	write(t, path("copied"), "a\nb\n")
	repeated(4)
	stop(t, f)
	require.NoError(t, os.Rename(path("done/moved"), path("moved while stopped")))
	f = New(c, owner, zap.New(core), lines, s.consume)
	require.NoError(t, f.Start(t.Context(), h))
	defer stop(t, f)
	repeated(5)
	refused := func() int { return logs.FilterMessageSnippet("file rejected").Len() }
	require.NoError(t, os.Remove(path("moved while stopped")))
	write(t, path("copied"), "bad") // overwritten in place: first incomplete
	require.Eventually(t, func() bool { return refused() == 1 }, time.Minute, time.Millisecond)
	write(t, path("copied"), "a\nb\n")
	repeated(6)
	write(t, path("copied"), "c\n")
	eventually(t, s, "abc")
	assert.Equal(t, 6, left())
	assert.Equal(t, 1, refused())
}

// A partly read file is continued under its new name, after files that arrived in between, and from
// the start if its content has changed.
func TestPartlyReadFilesAreRecognizedByTheirContent(t *testing.T) {
	for text, want := range map[string]string{"n\no\np\n": "nNop", "n\no\nq\n": "nNnoq"} {
		dir := t.TempDir()
		h := host{map[component.ID]component.Component{storageID: &memory{}}}
		c := config(dir)
		c.Storage = &storageID
		write(t, filepath.Join(dir, "n.txt"), "n\no\np\n")
		stuck := make(chan struct{})
		var once sync.Once
		s := &sink{fail: func(name string) error {
			if name == "o" {
				once.Do(func() { close(stuck) })
				return errors.New("busy")
			}
			return nil
		}}
		f := start(t, c, h, s)
		<-stuck
		stop(t, f)
		require.Equal(t, "n", s.got())

		require.NoError(t, os.Remove(filepath.Join(dir, "n.txt")))
		write(t, filepath.Join(dir, "renamed.txt"), text)
		write(t, filepath.Join(dir, "came first.txt"), "N\n")
		s.fail = nil
		f = start(t, c, h, s)
		eventually(t, s, want)
		stop(t, f)
	}
}

// A file that cannot be opened, or for which there is no space, is not faulty: it is read once that
// is possible.
func TestErrorsOutsideTheFileAreRetried(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.txt"), "a\nb\n")
	core, logs := observer.New(zap.WarnLevel)
	s := &sink{}
	tries := 0
	f := New(config(dir), owner, zap.New(core), func(
		ctx context.Context, path string, emit consumer.ConsumeTracesFunc,
	) error {
		if tries++; tries == 3 {
			return lines(ctx, path, emit)
		}
		return fmt.Errorf("cannot open: %w", &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission})
	}, s.consume)
	f.retry = 20 * time.Millisecond
	require.NoError(t, f.Start(t.Context(), componenttest.NewNopHost()))
	defer stop(t, f)
	eventually(t, s, "ab")
	assert.Equal(t, 3, tries)
	assert.Equal(t, 2, logs.Len(), "once for each try")
}

// In files with foreign spans, the first spans do not determine how many follow.
func TestAPartThatGrowsIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	write(t, path, "a\nb\n")
	s := &sink{}
	read := func(ctx context.Context, path string, emit consumer.ConsumeTracesFunc) error {
		return lines(ctx, path, func(ctx context.Context, td ptrace.Traces) error {
			td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetTraceID(pcommon.TraceID{1})
			return emit(ctx, td)
		})
	}
	f := New(config(dir), owner, zap.NewNop(), read, s.consume)
	f.Parts = true
	require.NoError(t, f.Start(t.Context(), componenttest.NewNopHost()))
	defer stop(t, f)
	eventually(t, s, "ab")
	write(t, path, "a\nb\nc\n")
	eventually(t, s, "ababc")
	require.NoError(t, os.Rename(path, filepath.Join(dir, "b.txt")))
	eventually(t, s, "ababc")
}
