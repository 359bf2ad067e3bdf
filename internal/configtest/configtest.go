// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package configtest reads the configurations that tests of components load. Its own tests compare
// the README, metadata.yaml and config.schema.yaml of every component with its configuration.
package configtest

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

// Load reads the entry id of testdata/config.yaml into a default configuration and validates it.
// The configuration is nil if a key could not be read at all.
func Load[C any](t *testing.T, id string, defaults func() component.Config) (*C, error) {
	t.Helper()
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := all.Sub(id)
	require.NoError(t, err)
	cfg := defaults()
	if err := sub.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return any(cfg).(*C), confmap.Validate(cfg)
}
