// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func emptyCache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", dir)
	return filepath.Join(dir, "otelgpu")
}

func TestConcurrentCallsShareOneBuild(t *testing.T) {
	dir := emptyCache(t)
	var builds atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			path, err := Cached(t.Context(), "tool", func(_ context.Context, path string) error {
				builds.Add(1)
				time.Sleep(10 * time.Millisecond)
				return os.WriteFile(path, []byte("whole"), 0o755)
			})
			assert.NoError(t, err)
			b, err := os.ReadFile(path)
			assert.NoError(t, err)
			assert.Equal(t, "whole", string(b))
		})
	}
	all.Wait()
	require.EqualValues(t, 1, builds.Load())
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "tool"), filepath.Join(dir, "tool.lock")}, left)
}

// Each of four processes appends a line when it builds.
func TestConcurrentProcessesShareOneBuild(t *testing.T) {
	const log = "OTELGPU_TEST_CACHED_LOG"
	build := func(_ context.Context, path string) error {
		f, err := os.OpenFile(os.Getenv(log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString("built\n")
		time.Sleep(50 * time.Millisecond)
		return errors.Join(err, f.Close(), os.WriteFile(path, []byte("whole"), 0o755))
	}
	if os.Getenv(log) != "" {
		_, err := Cached(t.Context(), "tool", build)
		require.NoError(t, err)
		return
	}
	emptyCache(t)
	file := filepath.Join(t.TempDir(), "log")
	var all sync.WaitGroup
	for range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConcurrentProcessesShareOneBuild$")
		cmd.Env = append(os.Environ(), log+"="+file)
		all.Go(func() {
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, string(out))
		})
	}
	all.Wait()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "built\n", string(b))
}

func TestFailedBuildIsTriedAgainAndLeavesNothing(t *testing.T) {
	dir := emptyCache(t)
	broken := errors.New("no compiler")
	_, err := Cached(t.Context(), "tool", func(_ context.Context, path string) error {
		return errors.Join(broken, os.WriteFile(path, []byte("half"), 0o755))
	})
	require.ErrorIs(t, err, broken)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "tool.lock")}, left)
	path, err := Cached(t.Context(), "tool", func(_ context.Context, path string) error {
		return os.WriteFile(path, []byte("whole"), 0o755)
	})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "tool"), path)
}

func TestWaitingForABuildEndsWithTheContext(t *testing.T) {
	emptyCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Cached(t.Context(), "tool", func(_ context.Context, path string) error {
		cancel()
		_, err := Cached(ctx, "tool", func(context.Context, string) error { return nil })
		require.ErrorIs(t, err, context.Canceled)
		return os.WriteFile(path, nil, 0o755)
	})
	require.NoError(t, err)
}
