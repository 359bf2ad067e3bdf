// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exporterhelper/xexporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newQueue returns the queue with its one consumer. A queue in memory has its own type of request,
// since a waiting request is packed and its spans cannot be counted; a queue in a storage keeps the
// requests and the format of exporterhelper.
func (p *joinProcessor) newQueue(ctx context.Context, set exporter.Settings) (exporter.Traces, error) {
	options := []exporterhelper.Option{
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}),
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{}), // a batch waits as long as it has to
	}
	queue := configoptional.Some(exporterhelper.QueueBatchConfig{
		Sizer:        exporterhelper.RequestSizerTypeBytes,
		QueueSize:    p.cfg.Queue.Size,
		StorageID:    p.cfg.Queue.Storage,
		NumConsumers: 1, // the order of batches is kept, and T only increases
	})
	set.Logger = set.Logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return quietCore{c} }))
	if p.cfg.Queue.Storage != nil {
		// deliver repeats what is rejected, and returns such an error only at the end of a
		// shutdown. exporterhelper's retry waits for the shutdown of the queue then, and marks the
		// error so that the queue keeps the request.
		options = append(options, exporterhelper.WithRetry(configretry.BackOffConfig{
			Enabled: true, InitialInterval: time.Hour, MaxInterval: time.Hour, Multiplier: 1,
		}))
		return exporterhelper.NewTraces(ctx, set, p.cfg, p.join, append(options, exporterhelper.WithQueue(queue))...)
	}
	consume := func(ctx context.Context, r xexporterhelper.Request) error { return p.join(ctx, r.(*queuedRequest).td) }
	return xexporterhelper.NewTracesRequest(ctx, set, newRequest, consume, append(options,
		xexporterhelper.WithQueueBatch(queue, xexporterhelper.QueueBatchSettings{ReferenceCounter: references{}}))...)
}

// quietCore omits the log entries of exporterhelper about single batches: deliver and drain report
// losses once, and exporterhelper reports a batch as dropped that stays in the storage.
type quietCore struct{ zapcore.Core }

func (c quietCore) With(fields []zapcore.Field) zapcore.Core { return quietCore{c.Core.With(fields)} }

func (c quietCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasPrefix(e.Message, "Exporting failed.") {
		return to
	}
	return c.Core.Check(e, to)
}

// queuedRequest is a request in the queue in memory. Its sizes are those at its arrival.
type queuedRequest struct {
	td           ptrace.Traces
	spans, bytes int
}

func newRequest(ctx context.Context, td ptrace.Traces) (xexporterhelper.Request, error) {
	return &queuedRequest{td: td, spans: td.SpanCount(), bytes: ctx.Value(pendingKey{}).(*pendingRequest).size}, nil
}

func (r *queuedRequest) ItemsCount() int { return r.spans }

func (r *queuedRequest) BytesSize() int { return r.bytes }

// MergeSplit implements xexporterhelper.Request; the queue makes no batches.
func (*queuedRequest) MergeSplit(context.Context, int, exporterhelper.RequestSizerType, xexporterhelper.Request,
) ([]xexporterhelper.Request, error) {
	return nil, errors.ErrUnsupported
}

// references keep data in the queue from being released by the pipeline.
type references struct{}

func (references) Ref(r xexporterhelper.Request) { pref.RefTraces(r.(*queuedRequest).td) }

func (references) Unref(r xexporterhelper.Request) { pref.UnrefTraces(r.(*queuedRequest).td) }
