// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kinetoreceiver

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/regularfile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/metadata"
)

// irregular makes files that block or never end, whose names sort before the names of profiles.
func irregular(t *testing.T, dir, ending string) (paths []string) {
	t.Chdir(dir) // addresses of sockets are short
	for _, name := range []string{"0pipe", "1link", "2device", "3socket"} {
		paths = append(paths, filepath.Join(dir, name+ending))
	}
	require.NoError(t, syscall.Mkfifo(paths[0], 0o600))
	require.NoError(t, os.Symlink(paths[0], paths[1]))
	require.NoError(t, os.Symlink("/dev/zero", paths[2]))
	l, err := net.Listen("unix", filepath.Base(paths[3]))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return paths
}

// Anyone who may write to a followed folder can put a named pipe there.
func TestAFollowedFolderMayHaveFilesThatBlock(t *testing.T) {
	dir := t.TempDir()
	bad := irregular(t, dir, ".json")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "good.json"), []byte(job(1, 2)), 0o600))
	core, logs := observer.New(zap.WarnLevel)
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	cfg := createDefaultConfig().(*Config)
	cfg.Files.Include = []string{filepath.Join(dir, "*.json")}
	cfg.Files.StableFor, cfg.Files.PollInterval = 0, time.Millisecond
	sink := &consumertest.TracesSink{}
	r, err := NewFactory().CreateTraces(t.Context(), set, cfg, sink)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool { return sink.SpanCount() > 0 }, time.Minute, time.Millisecond)
	require.NoError(t, r.Shutdown(t.Context()))
	require.Equal(t, len(bad), logs.Len(), "one warning each")
	for i, path := range bad {
		assert.Contains(t, logs.All()[i].ContextMap()["error"], path)
		assert.Contains(t, logs.All()[i].ContextMap()["error"], "not a regular file")
	}
}

func TestCapturesAndTablesMayBeFilesThatBlock(t *testing.T) {
	dir := t.TempDir()
	for _, path := range irregular(t, dir, ".json") {
		_, err := ReadFile(t.Context(), path, Options{}, nil)
		require.ErrorIs(t, err, regularfile.ErrIrregular)
		_, err = capturesOf(t.Context(), path, Options{})
		require.ErrorIs(t, err, regularfile.ErrIrregular)
	}
}
