// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver/internal/metadata"
)

// NewFactory returns the factory of type nsys.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithTraces(createTraces, metadata.TracesStability))
}

// createTraces returns a follower that reads with ReadFile.
func createTraces(_ context.Context, set receiver.Settings, cfg component.Config,
	next consumer.Traces,
) (receiver.Traces, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	return follow.NewReceiver(set, cfg.(*Config).Profiles, next, follow.Telemetry{
		Files: tel.ReceiverNsysFiles, Parts: tel.ReceiverNsysRows, Skipped: tel.ReceiverNsysRowsSkipped,
		Cut: tel.ReceiverNsysSpansCut, Close: tel.Shutdown,
	}, "rows", ReadFile)
}
