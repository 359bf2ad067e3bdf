// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/gputrace/follow"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver/internal/metadata"
)

// nsysReceiver is the component: a follower that reads with ReadFile.
type nsysReceiver struct {
	*follow.Follower
	cfg  *Config
	log  *zap.Logger
	next consumer.Traces
	obs  *receiverhelper.ObsReport
	tel  *metadata.TelemetryBuilder
	told map[string]bool // reasons that were logged
}

func newReceiver(set receiver.Settings, cfg *Config, next consumer.Traces) (*nsysReceiver, error) {
	obs, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: set.ID, Transport: "file", ReceiverCreateSettings: set,
	})
	if err != nil {
		return nil, err
	}
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	r := &nsysReceiver{cfg: cfg, log: set.Logger, next: next, obs: obs, tel: tel, told: map[string]bool{}}
	r.Follower = follow.New(cfg.Files, set.ID, set.Logger, r.read, r.consume)
	return r, nil
}

// Shutdown stops reading.
func (r *nsysReceiver) Shutdown(ctx context.Context) error {
	err := r.Follower.Shutdown(ctx)
	r.tel.Shutdown()
	return err
}

var _ component.Component = (*nsysReceiver)(nil)

func (r *nsysReceiver) consume(ctx context.Context, td ptrace.Traces) error {
	n := td.SpanCount()
	op := r.obs.StartTracesOp(ctx)
	err := r.next.ConsumeTraces(op, td)
	r.obs.EndTracesOp(op, metadata.Type.String(), n, err)
	return err
}

func (r *nsysReceiver) read(ctx context.Context, path string, emit follow.Emit) error {
	st, err := ReadFile(ctx, path, r.cfg.Options(), emit)
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		r.tel.ReceiverNsysFiles.Add(ctx, 1, outcome("refused"))
		return err
	}
	r.tel.ReceiverNsysFiles.Add(ctx, 1, outcome("read"))
	r.tel.ReceiverNsysRows.Add(ctx, st.Rows)
	r.tel.ReceiverNsysSpansCut.Add(ctx, st.Cut)
	for why, n := range st.Skipped {
		r.tel.ReceiverNsysRowsSkipped.Add(ctx, n, metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", why))))
		if !r.told[why] && len(r.told) < maxTold {
			r.told[why] = true
			r.log.Warn("rows left out; further files are only counted", zap.String("file", path), zap.String("reason", why), zap.Int64("rows", n))
		}
	}
	if len(st.Faults) > 0 {
		slices.Sort(st.Faults)
		r.log.Warn("metadata not used", zap.String("file", path), zap.Strings("faults", st.Faults))
	}
	if st.NamesDropped > 0 || st.Forgotten > 0 {
		r.log.Warn("file too large to be kept whole", zap.String("file", path),
			zap.Int64("names_without_text", st.NamesDropped), zap.Int64("launches_forgotten", st.Forgotten))
	}
	r.log.Info("file read", zap.String("file", path), zap.Int64("rows", st.Rows), zap.Int64("spans", st.Spans), zap.Int64("cut", st.Cut))
	return nil
}

// maxTold bounds the reasons that are logged.
const maxTold = 100

func outcome(o string) metric.AddOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", o)))
}
