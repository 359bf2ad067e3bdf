// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/metadata"
)

// NewFactory returns the factory of type kineto.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithTraces(createTraces, metadata.TracesStability))
}

// createTraces returns a follower that reads with ReadFile.
func createTraces(_ context.Context, set receiver.Settings, of component.Config,
	next consumer.Traces,
) (receiver.Traces, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	cfg, captures := of.(*Config), &link.CaptureCache{}
	r, err := follow.NewReceiver(set, cfg.Profiles, next, follow.Telemetry{
		Files: tel.ReceiverKinetoFiles, Parts: tel.ReceiverKinetoEvents, Skipped: tel.ReceiverKinetoEventsSkipped,
		Cut: tel.ReceiverKinetoSpansCut, Close: tel.Shutdown,
	}, "events", func(
		ctx context.Context, path string, o Options, emit consumer.ConsumeTracesFunc,
	) (profiletrace.Stats, error) {
		o.Cache = captures
		st, err := ReadFile(ctx, path, cfg.optionsOf(o, path), emit)
		if err == nil {
			tel.ReceiverKinetoJSON.Add(ctx, st.JSONBytes)
		}
		return st.Stats, err
	})
	if err == nil {
		r.Parts = cfg.Partial
	}
	return r, err
}
