// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/internal/gputrace/follow"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/metadata"
)

// kinetoReceiver is the component: a follower that reads with ReadFile.
type kinetoReceiver struct {
	*follow.Follower
	cfg     *Config
	tel     *metadata.TelemetryBuilder
	remarks *follow.Remarks
}

var _ component.Component = (*kinetoReceiver)(nil)

func newReceiver(set receiver.Settings, cfg *Config, next consumer.Traces) (*kinetoReceiver, error) {
	emit, err := follow.Consumer(set, next)
	if err != nil {
		return nil, err
	}
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	own := *cfg
	own.Spans.Version, own.Spans.Cache = set.BuildInfo.Version, &gputrace.CaptureCache{}
	r := &kinetoReceiver{cfg: &own, tel: tel, remarks: follow.NewRemarks(set.Logger, "events")}
	r.Follower = follow.New(cfg.Files, set.ID, set.Logger, r.read, emit)
	r.Parts = cfg.Partial
	return r, nil
}

// Shutdown stops reading.
func (r *kinetoReceiver) Shutdown(ctx context.Context) error {
	err := r.Follower.Shutdown(ctx)
	r.tel.Shutdown()
	return err
}

func (r *kinetoReceiver) read(ctx context.Context, path string, emit consumer.ConsumeTracesFunc) error {
	st, err := ReadFile(ctx, path, r.cfg.optionsOf(path), emit)
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, follow.ErrRepeated):
		r.tel.ReceiverKinetoFiles.Add(ctx, 1, follow.Label("outcome", "repeated"))
		return err
	case err != nil:
		r.tel.ReceiverKinetoFiles.Add(ctx, 1, follow.Label("outcome", "refused"))
		return err
	}
	r.tel.ReceiverKinetoFiles.Add(ctx, 1, follow.Label("outcome", "read"))
	r.tel.ReceiverKinetoEvents.Add(ctx, st.JSONEvents)
	r.tel.ReceiverKinetoJSON.Add(ctx, st.JSONBytes)
	r.tel.ReceiverKinetoSpansCut.Add(ctx, st.Cut)
	for why, n := range st.Skipped {
		r.tel.ReceiverKinetoEventsSkipped.Add(ctx, n, follow.Label("reason", why))
	}
	r.remarks.Read(path, st.JSONEvents, st.Stats, st.Skipped, st.Faults)
	return nil
}
