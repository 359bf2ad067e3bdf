// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package jaeger builds and runs the real Jaeger, version 2, with storage in memory, and reads traces back through its
// API version 3, which keeps nanoseconds and types (the older API and the UI round to microseconds).
package jaeger

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/otelgpu/otelgpu/test/internal/program"
)

// Version is Jaeger's module version. Its v1.x releases hold both generations; cmd/jaeger is the second.
const Version = "v1.76.0"

// ErrUnavailable is returned by Build when the module cannot be downloaded.
type ErrUnavailable struct{ Err error }

func (e *ErrUnavailable) Error() string {
	return fmt.Sprintf("cannot download Jaeger %s: %v", Version, e.Err)
}

// Unwrap returns the go command's error.
func (e *ErrUnavailable) Unwrap() error { return e.Err }

// Build returns the path of the jaeger binary. The first call on a machine compiles it in the module's own directory,
// with the sums that it was released with (a module that requires Jaeger cannot verify all of them, and go install
// refuses it for its replace lines), which takes 2 to 6 minutes on 2 cores; later ones find it in the user's cache.
func Build(ctx context.Context) (string, error) {
	alone := []string{"GOWORK=off"}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "otelgpu")
	path := filepath.Join(dir, fmt.Sprintf("jaeger-%s-%s", Version, runtime.Version()))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	out, err := program.Go(ctx, os.TempDir(), alone, "mod", "download", "-json",
		"github.com/jaegertracing/jaeger@"+Version)
	if err != nil {
		return "", &ErrUnavailable{err}
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", fmt.Errorf("cannot read what go mod download says of Jaeger: %w", err)
	}
	// Built under another name and renamed, so that an interrupted build leaves nothing that looks whole.
	unfinished := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(unfinished)
	if _, err := program.Go(ctx, module.Dir, alone, "build", "-trimpath", "-ldflags=-s -w", "-o", unfinished,
		"./cmd/jaeger"); err != nil {
		return "", err
	}
	return path, os.Rename(unfinished, path)
}
