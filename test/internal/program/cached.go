// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

var cached sync.Map // a path in the cache, and the channel of capacity 1 that guards it in this process

// Cached returns the path of the file name in the user's cache. If the file does not exist, build
// creates it at the path that it receives. Concurrent calls, in this process and in others, wait
// for one build; a call that waits returns when ctx ends. The file gets its name only when it is
// complete, and the next call tries a failed build again.
func Cached(ctx context.Context, name string, build func(ctx context.Context, path string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "otelgpu")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	// File locks belong to a process on some systems, so its goroutines need a separate lock.
	guard, _ := cached.LoadOrStore(path, make(chan struct{}, 1))
	select {
	case guard.(chan struct{}) <- struct{}{}:
		defer func() { <-guard.(chan struct{}) }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for another build of %s: %w", name, ctx.Err())
	}
	lock := flock.New(path + ".lock")
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return "", fmt.Errorf("cannot lock %s.lock: %w", path, err)
	}
	// The lock file stays: a process that removed it would let two others lock different files of
	// the same name.
	defer func() { _ = lock.Unlock() }()
	if _, err := os.Stat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	into, err := os.MkdirTemp(dir, name+".*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(into)
	unfinished := filepath.Join(into, name)
	if err := build(ctx, unfinished); err != nil {
		return "", err
	}
	return path, os.Rename(unfinished, path)
}
