// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension/internal/metadata"
)

// samples is the extension: a Store whose counters are observed.
type samples struct {
	*Store
	telemetry *metadata.TelemetryBuilder
	logger    *zap.Logger
}

var (
	_ Writer    = (*samples)(nil)
	_ Reader    = (*samples)(nil)
	_ UseWriter = (*samples)(nil)
	_ UseReader = (*samples)(nil)
)

func newSamples(cfg Config, set component.TelemetrySettings) (*samples, error) {
	tb, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, err
	}
	x := &samples{Store: NewStore(cfg, nil), telemetry: tb, logger: set.Logger}
	return x, x.observe()
}

// Start implements component.Component; rings are ready from the beginning.
func (*samples) Start(context.Context, component.Host) error { return nil }

// Ready implements extensioncapabilities.PipelineWatcher: it is called when all pipelines run. The Collector makes no
// component that is in no pipeline and says nothing of it, so this is where a forgotten `gpu` receiver is noticed.
func (x *samples) Ready() error {
	if !x.written.Load() {
		x.logger.Warn(
			"Nothing writes device samples, so no span will be joined (list a `gpu` receiver, or the `gpu_samples` " +
				"exporter, in a pipeline, and name this extension in its `samples`)")
	}
	return nil
}

// NotReady implements extensioncapabilities.PipelineWatcher.
func (*samples) NotReady() error { return nil }

// Shutdown implements component.Component.
func (x *samples) Shutdown(context.Context) error {
	x.telemetry.Shutdown()
	return nil
}

// observe binds the store's counters to the extension's own metrics, so that the write path only adds.
func (x *samples) observe() error {
	reason := func(r string) metric.ObserveOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", r)))
	}
	var (
		duplicate, outOfOrder = reason("duplicate"), reason("out_of_order")
		future, closed        = reason("future"), reason("not_registered")
		age, bytes            = reason("age"), reason("bytes")
		unknown, old, young   = reason("unknown_device"), reason("too_old"), reason("too_new")
		st                    = &x.stats
	)
	register := []func() error{
		func() error {
			return x.telemetry.RegisterExtensionGpuSamplesWrittenCallback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(st.written.Load())
				return nil
			})
		},
		func() error {
			return x.telemetry.RegisterExtensionGpuSamplesDroppedCallback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(st.duplicate.Load(), duplicate)
				o.Observe(st.outOfOrder.Load(), outOfOrder)
				o.Observe(st.future.Load(), future)
				o.Observe(st.closed.Load(), closed)
				return nil
			})
		},
		func() error {
			return x.telemetry.RegisterExtensionGpuSamplesEvictedCallback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(st.evictedAge.Load(), age)
				o.Observe(st.evictedBytes.Load(), bytes)
				return nil
			})
		},
		func() error {
			return x.telemetry.RegisterExtensionGpuSamplesMissesCallback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(st.missUnknown.Load(), unknown)
				o.Observe(st.missOld.Load(), old)
				o.Observe(st.missNew.Load(), young)
				return nil
			})
		},
		func() error {
			return x.telemetry.RegisterExtensionGpuSamplesUsesDroppedCallback(func(_ context.Context,
				o metric.Int64Observer,
			) error {
				o.Observe(x.uses.dropped.Load())
				return nil
			})
		},
		func() error {
			return x.telemetry.RegisterExtensionGpuSamplesMemoryCallback(func(_ context.Context, o metric.Int64Observer) error {
				x.mu.RLock()
				defer x.mu.RUnlock()
				o.Observe(x.bytes)
				return nil
			})
		},
		func() error {
			return x.telemetry.RegisterExtensionGpuSamplesDevicesCallback(func(_ context.Context, o metric.Int64Observer) error {
				x.mu.RLock()
				defer x.mu.RUnlock()
				o.Observe(int64(len(x.devices)))
				return nil
			})
		},
	}
	for _, r := range register {
		if err := r(); err != nil {
			return err
		}
	}
	return nil
}
