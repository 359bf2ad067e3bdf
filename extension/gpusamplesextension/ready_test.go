// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

type hostOf map[component.ID]component.Component

func (h hostOf) GetExtensions() map[component.ID]component.Component { return h }

func TestRingsWithoutAWriterAreReportedOnce(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	set := componenttest.NewNopTelemetrySettings()
	set.Logger = zap.New(core)
	id := component.MustNewID("gpu_samples")
	for _, written := range []bool{false, true} {
		x, err := newSamples(*createDefaultConfig().(*Config), set)
		require.NoError(t, err)
		if written {
			_, err = devicesamples.FindWriter(hostOf{id: x}, id)
			require.NoError(t, err)
		}
		require.NoError(t, x.Ready())
		require.NoError(t, x.NotReady())
		require.NoError(t, x.Shutdown(context.Background()))
	}
	require.Equal(t, 1, logs.Len())
	assert.Contains(t, logs.All()[0].Message, "list a `gpu` receiver, or the `gpu_samples` exporter, in a pipeline")
}
