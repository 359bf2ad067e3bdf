// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/internal/gputrace/follow"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver/internal/metadata"
)

// nsysReceiver is the component: a follower that reads with ReadFile.
type nsysReceiver struct {
	*follow.Follower
	cfg     *Config
	tel     *metadata.TelemetryBuilder
	remarks *follow.Remarks
}

var _ component.Component = (*nsysReceiver)(nil)

func newReceiver(set receiver.Settings, cfg *Config, next consumer.Traces) (*nsysReceiver, error) {
	emit, err := follow.Consumer(set, next)
	if err != nil {
		return nil, err
	}
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	own := *cfg
	own.Spans.Version = set.BuildInfo.Version
	r := &nsysReceiver{cfg: &own, tel: tel, remarks: follow.NewRemarks(set.Logger, "rows")}
	r.Follower = follow.New(cfg.Files, set.ID, set.Logger, r.read, emit)
	return r, nil
}

// Shutdown stops reading.
func (r *nsysReceiver) Shutdown(ctx context.Context) error {
	err := r.Follower.Shutdown(ctx)
	r.tel.Shutdown()
	return err
}

func (r *nsysReceiver) read(ctx context.Context, path string, emit consumer.ConsumeTracesFunc) error {
	st, err := ReadFile(ctx, path, r.cfg.Spans, emit)
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, follow.ErrRepeated):
		r.tel.ReceiverNsysFiles.Add(ctx, 1, follow.Label("outcome", "repeated"))
		return err
	case err != nil:
		r.tel.ReceiverNsysFiles.Add(ctx, 1, follow.Label("outcome", "refused"))
		return err
	}
	r.tel.ReceiverNsysFiles.Add(ctx, 1, follow.Label("outcome", "read"))
	r.tel.ReceiverNsysRows.Add(ctx, st.Rows)
	r.tel.ReceiverNsysSpansCut.Add(ctx, st.Cut)
	for why, n := range st.Skipped {
		r.tel.ReceiverNsysRowsSkipped.Add(ctx, n, follow.Label("reason", why))
	}
	r.remarks.Read(path, st.Rows, st.Stats, st.Skipped, st.Faults)
	return nil
}
