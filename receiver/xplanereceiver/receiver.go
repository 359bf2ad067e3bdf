// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"context"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
	"github.com/otelgpu/otelgpu/receiver/xplanereceiver/internal/metadata"
)

// newReceiver returns a follower that reads with ReadFile.
func newReceiver(set receiver.Settings, cfg *Config, next consumer.Traces) (*follow.Receiver, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	o := cfg.Spans
	o.Version = set.BuildInfo.Version
	return follow.NewReceiver(set, cfg.Files, next, follow.Telemetry{
		Files: tel.ReceiverXplaneFiles, Parts: tel.ReceiverXplaneEvents, Skipped: tel.ReceiverXplaneEventsSkipped,
		Cut: tel.ReceiverXplaneSpansCut, Close: tel.Shutdown,
	}, "events", func(ctx context.Context, path string, emit consumer.ConsumeTracesFunc) (follow.Summary, error) {
		st, err := ReadFile(ctx, path, o, emit)
		return follow.Summary{Stats: st.Stats, Parts: st.Events}, err
	})
}
