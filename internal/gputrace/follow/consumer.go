// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
)

// Consumer hands batches to next and counts them as the receiver's.
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
		err := next.ConsumeTraces(op, td)
		obs.EndTracesOp(op, format, n, err)
		return err
	}, nil
}
