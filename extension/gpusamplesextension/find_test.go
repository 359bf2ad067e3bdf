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

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

type extHost struct {
	component.Host
	ext map[component.ID]component.Component
}

func (h extHost) GetExtensions() map[component.ID]component.Component { return h.ext }

type otherExtension struct{}

func (otherExtension) Start(context.Context, component.Host) error { return nil }
func (otherExtension) Shutdown(context.Context) error              { return nil }

func TestFindNamesMissingSymbols(t *testing.T) {
	id := component.MustNewID("gpu_samples")
	x, err := newSamples(*createDefaultConfig().(*Config), componenttest.NewNopTelemetrySettings())
	require.NoError(t, err)
	h := extHost{componenttest.NewNopHost(), map[component.ID]component.Component{
		id: x, component.MustNewID("zpages"): otherExtension{},
	}}
	w, err := devicesamples.FindWriter(h, id)
	require.NoError(t, err)
	assert.Same(t, x, w)
	_, err = devicesamples.FindReader(h, component.MustNewID("absent"))
	require.EqualError(t, err,
		"cannot find extension \"absent\" (define it under `extensions` and list it under `service::extensions`)")
	_, err = devicesamples.FindReader(h, component.MustNewID("zpages"))
	require.EqualError(t, err, `extension "zpages" has no device samples (use an extension of type gpu_samples)`)
}
