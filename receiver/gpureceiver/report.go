// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// opened implements handler.
func (r *gpuReceiver) opened(source string, devices []gpusamplesextension.Device, skipped error) {
	fields := []zap.Field{zap.String("source", source), zap.Int("devices", len(devices))}
	if skipped != nil {
		fields = append(fields, zap.NamedError("instead_of", skipped))
	}
	r.set.Logger.Info("GPU source opened", fields...)
	r.troubled = false
	componentstatus.ReportStatus(r.componentHost, componentstatus.NewEvent(componentstatus.StatusOK))
	r.adopt(devices)
}

// read implements handler.
func (r *gpuReceiver) read(source string, devices []gpusamplesextension.Device, b *gpudata.Batch, d time.Duration) {
	if b.Changed {
		r.adopt(devices)
	}
	ctx := context.Background()
	attrs := r.option("source", source)
	r.telemetry.ReceiverGpuCallDuration.Record(ctx, d.Seconds(), attrs)
	r.telemetry.ReceiverGpuValues.Add(ctx, int64(len(b.Values)), attrs)
	for reason, n := range b.Dropped {
		if n > 0 {
			r.telemetry.ReceiverGpuDropped.Add(ctx, n, r.dropAttrs[reason])
		}
	}
	if r.troubled {
		r.troubled = false
		r.set.Logger.Info("GPU source answers again", zap.String("source", source))
		componentstatus.ReportStatus(r.componentHost, componentstatus.NewEvent(componentstatus.StatusOK))
	}
	r.take(b)
}

// late implements handler.
func (r *gpuReceiver) late(source, op string) {
	r.failure(source, "timeout")
	r.trouble(fmt.Errorf("%s: %s has not returned within `call_timeout` (%s)", source, op, r.cfg.CallTimeout))
}

// lost implements handler.
func (r *gpuReceiver) lost(source string, err error) {
	r.failure(source, "read")
	r.trouble(fmt.Errorf("%s: lost, will be opened again: %w", source, err))
}

// unavailable implements handler.
func (r *gpuReceiver) unavailable(err error, d time.Duration) {
	for _, s := range r.sources {
		r.failure(s.Name(), "open")
	}
	r.trouble(fmt.Errorf("no GPU data: %w (next try in %s; see the receiver's README for what each source needs)", err, d))
}

// finished implements handler.
func (r *gpuReceiver) finished(source string) {
	r.set.Logger.Info("GPU source has no more data", zap.String("source", source))
}

// trouble warns once until the source answers again; repetitions are for debugging.
func (r *gpuReceiver) trouble(err error) {
	if r.troubled {
		r.set.Logger.Debug("GPU source still does not answer", zap.Error(err))
		return
	}
	r.troubled = true
	// A machine without a GPU is a normal place for auto, which was asked to look: it found none. A source that was asked
	// for by name, or one that had devices before, is missed.
	log := r.set.Logger.Warn
	if r.cfg.Source == sourceAuto && len(r.known) == 0 {
		log = r.set.Logger.Info
	}
	log("GPU source does not answer", zap.Error(err))
	componentstatus.ReportStatus(r.componentHost, componentstatus.NewRecoverableErrorEvent(err))
}

func (r *gpuReceiver) failure(source, reason string) {
	r.telemetry.ReceiverGpuFailures.Add(context.Background(), 1,
		metric.WithAttributes(attribute.String("source", source), attribute.String("reason", reason)))
}

func (r *gpuReceiver) option(key, value string) metric.MeasurementOption {
	o, ok := r.attrs[value]
	if !ok {
		o = metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
		r.attrs[value] = o
	}
	return o
}
