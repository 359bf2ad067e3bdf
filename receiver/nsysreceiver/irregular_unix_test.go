// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package nsysreceiver

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

	"github.com/otelgpu/otelgpu/receiver/nsysreceiver/internal/metadata"
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
	bad := irregular(t, dir, ".sqlite")
	require.NoError(t, os.Rename(export(t, strings0, strings1, kernel0, session0, session1,
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId) VALUES (1000, 2000, 0, 7)"),
		filepath.Join(dir, "good.sqlite")))
	core, logs := observer.New(zap.WarnLevel)
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	cfg := createDefaultConfig().(*Config)
	cfg.Files.Include = []string{filepath.Join(dir, "*.sqlite")}
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
