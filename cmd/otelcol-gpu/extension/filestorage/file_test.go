// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package filestorage

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/queuestorage"
)

// watcher is a storage that can act when the pipelines run.
type watcher interface {
	storage.Extension
	Ready() error
}

// opened starts the extension in a folder and observes its log.
func opened(t *testing.T, folder string, change ...func(*filestorage.Config)) (watcher, *observer.ObservedLogs) {
	t.Helper()
	f := NewFactory()
	cfg := f.CreateDefaultConfig().(*filestorage.Config)
	cfg.Directory, cfg.DirectoryPermissions, cfg.MaxSize, cfg.Timeout = folder, "", 1<<20, time.Millisecond
	for _, f := range change {
		f(cfg)
	}
	core, logs := observer.New(zap.WarnLevel)
	set := extensiontest.NewNopSettings(f.Type())
	set.Logger = zap.New(core)
	x, err := f.Create(t.Context(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, x.Start(t.Context(), componenttest.NewNopHost()))
	return x.(watcher), logs
}

// fill writes a queue with five requests: two were sent, and one of these is not confirmed.
func fill(t *testing.T, folder, name string) string {
	t.Helper()
	x, _ := opened(t, folder)
	c, err := x.GetClient(t.Context(), component.KindExporter, component.MustNewID(name), "traces")
	require.NoError(t, err)
	position := []byte{
		3<<3 | 1, 2, 0, 0, 0, 0, 0, 0, 0, // read
		4<<3 | 1, 5, 0, 0, 0, 0, 0, 0, 0, // written
		5<<3 | 2, 8, 1, 0, 0, 0, 0, 0, 0, 0, // being sent
	}
	require.NoError(t, c.Set(t.Context(), queuestorage.PositionKey, position))
	require.NoError(t, c.Close(t.Context()))
	return filepath.Join(folder, "exporter_"+name+"__traces")
}

// A restart with another configuration can leave requests behind: a warning counts them.
func TestRequestsThatNoQueueReadsAreReported(t *testing.T) {
	folder := t.TempDir()
	renamed := fill(t, folder, "renamed")
	fill(t, folder, "kept")
	truncated := fill(t, folder, "truncated")
	size, err := os.Stat(truncated)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(truncated, 8192))
	require.Greater(t, size.Size(), int64(8192))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "text"), []byte("no queue"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "directory"), 0o700))

	x, logs := opened(t, folder)
	for _, id := range []string{"kept", "new"} {
		c, err := x.GetClient(t.Context(), component.KindExporter, component.MustNewID(id), "traces")
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close(t.Context())) }()
	}
	require.NoError(t, x.Ready())
	require.Len(t, logs.All(), 1)
	assert.Equal(t, map[string]any{"file": renamed, "requests": uint64(4)}, logs.All()[0].ContextMap())
}

// The error names the component, the directory and the remedy.
func TestFilesThatCannotBeOpenedHaveRemedies(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "exporter_damaged__traces"), bytes.Repeat([]byte("x"), 1<<16), 0o600))
	x, _ := opened(t, folder)
	open := func(id string) (storage.Client, error) {
		return x.GetClient(t.Context(), component.KindExporter, component.MustNewID(id), "traces")
	}
	_, err := open("damaged")
	require.ErrorContains(t, err, "cannot open the queue of damaged in "+folder+": invalid database (the file is damaged: move it away;")
	c, err := open("used")
	require.NoError(t, err)
	_, err = open("used")
	require.ErrorContains(t, err, "timeout (another process uses it:")
	require.NoError(t, c.Close(t.Context()))
}

// A file that lost its end would end the process when a queue reads the missing pages.
func TestTruncatedFilesAreDamaged(t *testing.T) {
	folder := t.TempDir()
	path := fill(t, folder, "short")
	for _, size := range []int64{16383, 12288, 8192, 4096, 1} { // below the four pages that an empty one has
		require.NoError(t, os.Truncate(path, size))
		x, _ := opened(t, folder)
		_, err := x.GetClient(t.Context(), component.KindExporter, component.MustNewID("short"), "traces")
		require.ErrorContains(t, err, "(the file is damaged: move it away;", size)
	}
	fill(t, folder, "replaced")
	require.NoError(t, os.Truncate(filepath.Join(folder, "exporter_replaced__traces"), 8192))
	x, logs := opened(t, folder, func(c *filestorage.Config) { c.Recreate = true })
	c, err := x.GetClient(t.Context(), component.KindExporter, component.MustNewID("replaced"), "traces")
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
	require.Len(t, logs.All(), 1)
	assert.FileExists(t, logs.All()[0].ContextMap()["renamed"].(string))
}
