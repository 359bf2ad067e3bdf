// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// Consumer passes batches to next, which gets copies of rejected ones until it accepts them
// or the context ends, and counts them as the receiver's.
func Consumer(set receiver.Settings, next consumer.Traces) (consumer.ConsumeTracesFunc, error) {
	obs, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: set.ID, Transport: "file", ReceiverCreateSettings: set,
	})
	if err != nil {
		return nil, err
	}
	format := set.ID.Type().String()
	return func(ctx context.Context, td ptrace.Traces) error {
		n := td.SpanCount()
		op := obs.StartTracesOp(ctx)
		err := resend.Copies(op, td, ptrace.NewTraces, next.ConsumeTraces)
		obs.EndTracesOp(op, format, n, err)
		return err
	}, nil
}

// Telemetry holds the counters of a receiver that reads files.
type Telemetry struct {
	Files   metric.Int64Counter // by outcome
	Parts   metric.Int64Counter // that files consist of
	Skipped metric.Int64Counter // parts that were omitted, by reason
	Cut     metric.Int64Counter // spans
	Close   func()
}

// Receiver is the component that follows files, counts their outcomes, and logs each reason for
// leaving something out once for all files.
type Receiver struct {
	*Follower
	tel  Telemetry
	log  *zap.Logger
	what string
	told map[string]bool
}

var _ component.Component = (*Receiver)(nil)

// maxTold bounds the logged reasons.
const maxTold = 100

// NewReceiver creates the component; what is the plural of the records of a file: events, rows.
func NewReceiver(set receiver.Settings, cfg Profiles, next consumer.Traces, tel Telemetry, what string,
	read func(context.Context, string, profiletrace.Options, consumer.ConsumeTracesFunc) (profiletrace.Stats, error),
) (*Receiver, error) {
	cfg.Spans.Version = set.BuildInfo.Version
	emit, err := Consumer(set, next)
	if err != nil {
		return nil, err
	}
	r := &Receiver{tel: tel, log: set.Logger, what: what, told: map[string]bool{}}
	take := func(ctx context.Context, path string, emit consumer.ConsumeTracesFunc) error {
		st, err := read(ctx, path, cfg.Spans, emit)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrRepeated):
			tel.Files.Add(ctx, 1, sharedcomponent.Label("outcome", "repeated"))
		case err != nil:
			tel.Files.Add(ctx, 1, sharedcomponent.Label("outcome", "refused"))
		default:
			r.took(ctx, path, &st)
		}
		return err
	}
	r.Follower = New(cfg.Files, set.ID, set.Logger, take, emit)
	return r, nil
}

// Shutdown stops reading.
func (r *Receiver) Shutdown(ctx context.Context) error {
	err := r.Follower.Shutdown(ctx)
	r.tel.Close()
	return err
}

// took counts and logs a file that was read.
func (r *Receiver) took(ctx context.Context, path string, st *profiletrace.Stats) {
	r.tel.Files.Add(ctx, 1, sharedcomponent.Label("outcome", "read"))
	r.tel.Parts.Add(ctx, st.Records)
	r.tel.Cut.Add(ctx, st.Cut)
	for why, n := range st.Skipped {
		r.tel.Skipped.Add(ctx, n, sharedcomponent.Label("reason", why))
		if !r.told[why] && len(r.told) < maxTold {
			r.told[why] = true
			r.log.Warn(r.what+" skipped; further files are only counted", zap.String("file", path), zap.String("reason", why),
				zap.Int64(r.what, n))
		}
	}
	if len(st.Faults) > 0 {
		r.log.Warn("parts of the file are ignored", zap.String("file", path),
			zap.Strings("faults", slices.Sorted(slices.Values(st.Faults))))
	}
	if st.Host != nil {
		r.log.Warn("no activity of a device in the file", zap.String("file", path), zap.Stringer("finding", st.Host))
	}
	r.log.Info("file read", zap.String("file", path), zap.Int64(r.what, st.Records), zap.Int64("spans", st.Spans),
		zap.Int64("cut", st.Cut))
}
