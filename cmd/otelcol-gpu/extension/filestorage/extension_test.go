// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package filestorage

import (
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A request that does not fit is rejected, and the others of the queue can still be read.
func TestAFullQueueCanBeRead(t *testing.T) {
	f, of := NewFactory(), filestorage.NewFactory()
	assert.Equal(t, of.Type(), f.Type())
	assert.Equal(t, of.Stability(), f.Stability())
	cfg := f.CreateDefaultConfig().(*filestorage.Config)
	cfg.Directory, cfg.MaxSize = t.TempDir(), 64<<10
	cfg.DirectoryPermissions = ""
	x, err := f.Create(t.Context(), extensiontest.NewNopSettings(f.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, x.Start(t.Context(), componenttest.NewNopHost()))
	id := component.MustNewID("otlp_http")
	c, err := x.(storage.Extension).GetClient(t.Context(), component.KindExporter, id, "traces")
	require.NoError(t, err)
	require.NoError(t, c.Set(t.Context(), "0", []byte("request")))
	large := make([]byte, 1<<20)
	require.ErrorIs(t, c.Batch(t.Context(), storage.SetOperation("1", large)), storage.ErrStorageFull)
	get := storage.GetOperation("0")
	require.NoError(t, c.Batch(t.Context(), storage.SetOperation("position", large), get))
	assert.Equal(t, "request", string(get.Value))
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, x.Shutdown(t.Context()))
}
