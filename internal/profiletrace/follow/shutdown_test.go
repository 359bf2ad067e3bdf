// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.uber.org/zap"
)

func TestShutdownEndsAtItsDeadlineAndNamesTheFileThatBlocks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	write(t, path, "A")
	begun, release := make(chan struct{}), make(chan struct{})
	read := func(context.Context, string, consumer.ConsumeTracesFunc) error { // as on a file system that hangs
		close(begun)
		<-release
		return nil
	}
	f := New(config(dir), owner, zap.NewNop(), read, new(sink).consume)
	require.NoError(t, f.Start(t.Context(), componenttest.NewNopHost()))
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := f.Shutdown(ctx)
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, path)
	close(release)
	f.wg.Wait()
}
