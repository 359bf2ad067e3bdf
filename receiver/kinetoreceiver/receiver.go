// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/metadata"
)

// newReceiver returns a follower that reads with ReadFile.
func newReceiver(set receiver.Settings, cfg *Config, next consumer.Traces) (*follow.Receiver, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	own := *cfg
	own.Spans.Version, own.Spans.Cache = set.BuildInfo.Version, &link.CaptureCache{}
	r, err := follow.NewReceiver(set, cfg.Files, next, follow.Telemetry{
		Files: tel.ReceiverKinetoFiles, Parts: tel.ReceiverKinetoEvents, Skipped: tel.ReceiverKinetoEventsSkipped,
		Cut: tel.ReceiverKinetoSpansCut, Close: tel.Shutdown,
	}, "events", func(ctx context.Context, path string, emit consumer.ConsumeTracesFunc) (follow.Summary, error) {
		st, err := ReadFile(ctx, path, own.optionsOf(path), emit)
		if err == nil {
			tel.ReceiverKinetoJSON.Add(ctx, st.JSONBytes)
		}
		return follow.Summary{Stats: st.Stats, Parts: st.JSONEvents}, err
	})
	if err == nil {
		r.Parts = cfg.Partial
	}
	return r, err
}
