// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exporterhelper/xexporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
)

// newQueue returns the queue with its one consumer. A queue in memory has its own type of request, since a waiting
// request is packed and its spans cannot be counted; a queue in a storage keeps the requests and the format of
// exporterhelper.
func (p *joinProcessor) newQueue(ctx context.Context, set exporter.Settings) (exporter.Traces, error) {
	options := []exporterhelper.Option{
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}),
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{}), // a batch waits as long as it has to
		exporterhelper.WithRetry(p.cfg.RetryOnFailure),
	}
	queue := configoptional.Some(exporterhelper.QueueBatchConfig{
		Sizer:        exporterhelper.RequestSizerTypeBytes,
		QueueSize:    p.cfg.Queue.Size,
		StorageID:    p.cfg.Queue.Storage,
		NumConsumers: 1, // the order of batches is kept, and T only increases
	})
	if p.cfg.Queue.Storage != nil {
		return exporterhelper.NewTraces(ctx, set, p.cfg, p.join, append(options, exporterhelper.WithQueue(queue))...)
	}
	consume := func(ctx context.Context, r xexporterhelper.Request) error { return p.join(ctx, r.(*queuedRequest).td) }
	return xexporterhelper.NewTracesRequest(ctx, set, newRequest, consume, append(options,
		xexporterhelper.WithQueueBatch(queue, xexporterhelper.QueueBatchSettings{ReferenceCounter: references{}}))...)
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
