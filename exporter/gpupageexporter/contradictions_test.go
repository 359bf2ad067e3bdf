// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpupageexporter

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/otelgpu/otelgpu/exporter/gpupageexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/plausibility"
)

type extensions map[component.ID]component.Component

func (e extensions) GetExtensions() map[component.ID]component.Component { return e }

// store is the gpu_samples extension with its own life cycle.
type store struct {
	component.Component
	*devicesamples.Store
}

func TestThePageListsContradictionsOfTheExtensions(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	model := page.New()
	f := NewFactory(WithModel(model), WithListener(listener))
	exp, err := f.CreateMetrics(t.Context(), exportertest.NewNopSettings(metadata.Type), createDefaultConfig())
	require.NoError(t, err)
	st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	require.NoError(t, exp.Start(t.Context(), extensions{component.MustNewID("gpu_samples"): store{Store: st}}))
	defer func() { require.NoError(t, exp.Shutdown(t.Context())) }()

	st.Contradict(plausibility.Contradiction{Source: "dcgm", Reason: plausibility.ClockOffset, Found: "3 s behind"})
	got := model.State(page.Query{}).Contradictions
	require.Len(t, got, 1)
	require.Equal(t, "3 s behind", got[0].Found)
}
