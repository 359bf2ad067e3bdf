// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package jaegertest runs Jaeger for the duration of a test.
package jaegertest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/jaeger"
)

// Start builds and starts Jaeger on free ports and ends it after the test. The test is an
// integration test; it is skipped if Jaeger's module cannot be downloaded, which is a failure if CI
// is set.
func Start(t *testing.T) *jaeger.Jaeger {
	t.Helper()
	integration.Need(t)
	path, err := jaeger.Build(t.Context())
	if _, away := errors.AsType[*jaeger.ErrUnavailable](err); away && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	addresses, err := jaeger.FreeAddresses()
	require.NoError(t, err)
	// The test's context ends before its cleanups, and would kill Jaeger.
	j, err := jaeger.Start(context.WithoutCancel(t.Context()), path, t.TempDir(), addresses)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Stop(time.Minute)) })
	return j
}
