// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/metadata"
)

var storageID = component.MustNewID("file_storage")

// backend counts how often each span arrives, over all runs of the receiver. It accepts room
// batches, then rejects all.
type backend struct {
	mu    sync.Mutex
	spans map[pcommon.SpanID]int
	room  int
}

func (*backend) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (b *backend) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.room == 0 {
		return errors.New("busy")
	}
	b.room--
	for _, s := range spansOf([]ptrace.Traces{td}) {
		b.spans[s.SpanID()]++
	}
	return nil
}

func (b *backend) got() map[pcommon.SpanID]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.spans)
}

func (b *backend) allow(room int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.room = room
}

type storageHost struct{ ext component.Component }

func (h storageHost) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{storageID: h.ext}
}

// life runs a receiver with the Collector's file_storage, until the returned function shuts it
// down.
func life(t *testing.T, folder, store string, next consumer.Traces) (end func()) {
	t.Helper()
	f := filestorage.NewFactory()
	ec := f.CreateDefaultConfig().(*filestorage.Config)
	ec.Directory = store
	ext, err := f.Create(t.Context(), extensiontest.NewNopSettings(f.Type()), ec)
	require.NoError(t, err)
	host := storageHost{ext}
	require.NoError(t, ext.Start(t.Context(), host))
	cfg := createDefaultConfig().(*Config)
	cfg.Files.Include = []string{filepath.Join(folder, "**", "*.pt.trace.json")}
	cfg.Files.PollInterval, cfg.Files.StableFor, cfg.Files.Storage = 5*time.Millisecond, 50*time.Millisecond, &storageID
	cfg.Spans.Detail, cfg.Spans.BatchSpans = DetailKernels, 10
	set := receivertest.NewNopSettings(metadata.Type)
	set.ID = component.NewID(metadata.Type) // the same in each run
	r, err := NewFactory().CreateTraces(t.Context(), set, cfg, next)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), host))
	return func() {
		require.NoError(t, r.Shutdown(context.WithoutCancel(t.Context())))
		require.NoError(t, ext.Shutdown(context.WithoutCancel(t.Context())))
	}
}

// job returns a trace of n steps whose numbers and times start at from.
func job(from, n int64) string {
	var parts []string
	for i := from; i < from+n; i++ {
		parts = append(parts, step(i, 2000*i))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// once returns the expected counts if each span of the files arrives once.
func once(t *testing.T, texts ...string) map[pcommon.SpanID]int {
	want := map[pcommon.SpanID]int{}
	for _, text := range texts {
		b, _ := convert(t, text, Options{Detail: DetailKernels})
		for _, s := range spansOf(b) {
			want[s.SpanID()]++
		}
	}
	return want
}

func arrives(t *testing.T, b *backend, want map[pcommon.SpanID]int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.got()) == len(want) }, time.Minute, time.Millisecond,
		"have %d of %d spans", len(b.got()), len(want))
	time.Sleep(150 * time.Millisecond) // several polls: nothing more arrives
	assert.Equal(t, want, b.got())
}

func TestRestartNeitherLosesNorRepeatsWithFileStorage(t *testing.T) {
	folder, store := t.TempDir(), t.TempDir()
	a, c := job(1, 30), job(100, 5)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.pt.trace.json"), []byte(a), 0o600))
	b := &backend{spans: map[pcommon.SpanID]int{}, room: 4}
	end := life(t, folder, store, b)
	require.Eventually(t, func() bool { return len(b.got()) == 40 }, time.Minute, time.Millisecond)
	end() // in the middle of the file

	// written while the receiver was stopped
	require.NoError(t, os.WriteFile(filepath.Join(folder, "c.pt.trace.json"), []byte(c), 0o600))
	b.allow(1000)
	end = life(t, folder, store, b)
	arrives(t, b, once(t, a, c))
	end()

	end = life(t, folder, store, b) // everything was read
	arrives(t, b, once(t, a, c))
	end()
}

func TestFilesThatGrowAndFilesThatAreRenamedAreReadWholeAndOnce(t *testing.T) {
	folder, store := t.TempDir(), t.TempDir()
	b := &backend{spans: map[pcommon.SpanID]int{}, room: 1000}
	end := life(t, folder, store, b)

	grown := `{"traceEvents":` + job(1, 20) + `}`
	f, err := os.Create(filepath.Join(folder, "grown.pt.trace.json"))
	require.NoError(t, err)
	for part := range slices.Chunk([]byte(grown), len(grown)/10+1) {
		_, err := f.Write(part)
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	arrives(t, b, once(t, grown))

	// A writer that pauses for longer than stable_for: the file is rejected as truncated, and read
	// once it is complete.
	rested := `{"traceEvents":` + job(50, 20) + `}`
	require.NoError(t, f.Close())
	f, err = os.Create(filepath.Join(folder, "rested.pt.trace.json"))
	require.NoError(t, err)
	_, err = f.WriteString(rested[:len(rested)/2])
	require.NoError(t, err)
	time.Sleep(200 * time.Millisecond)
	assert.Equal(t, once(t, grown), b.got())
	_, err = f.WriteString(rested[len(rested)/2:])
	require.NoError(t, err)
	require.NoError(t, f.Close())
	arrives(t, b, once(t, grown, rested))

	// A writer that renames: the file appears complete. Replaced by a rename, it is another file.
	first, second := job(200, 5), job(300, 5)
	path := filepath.Join(folder, "deep", "renamed.pt.trace.json")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	for i, text := range []string{first, second} {
		require.NoError(t, os.WriteFile(path+".tmp", []byte(text), 0o600))
		require.NoError(t, os.Rename(path+".tmp", path))
		arrives(t, b, once(t, append([]string{grown, rested}, []string{first, second}[:i+1]...)...))
	}
	end()

	end = life(t, folder, store, b)
	arrives(t, b, once(t, grown, rested, first, second))
	end()
}

// Files are moved, compressed and copied while their folder is followed.
func TestFilesThatArePackedOrMovedAreNotRepeated(t *testing.T) {
	folder, store := t.TempDir(), t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name+".pt.trace.json") }
	text := job(1, 20)
	require.NoError(t, os.WriteFile(path("a"), []byte(text), 0o600))
	b := &backend{spans: map[pcommon.SpanID]int{}, room: 1000}
	end := life(t, folder, store, b)
	arrives(t, b, once(t, text))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, os.WriteFile(path("packed"), packed.Bytes(), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "done"), 0o700))
	require.NoError(t, os.Rename(path("a"), path("done/a")))
	arrives(t, b, once(t, text))
	end()

	require.NoError(t, os.Rename(path("packed"), path("done/packed")))
	end = life(t, folder, store, b)
	arrives(t, b, once(t, text))
	other := job(50, 20)
	require.NoError(t, os.WriteFile(path("a"), []byte(other), 0o600)) // the old name for another file
	arrives(t, b, once(t, text, other))
	end()
}
