// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

func (r *gpuReceiver) opened(source string, devices []devicesamples.Device, skipped error) {
	fields := []zap.Field{zap.String("source", source), zap.Int("devices", len(devices))}
	if skipped != nil {
		fields = append(fields, zap.NamedError("instead_of", skipped))
	}
	r.set.Logger.Info("GPU source opened", fields...)
	r.trouble = ""
	r.clock.reset(time.Now())
	componentstatus.ReportStatus(r.componentHost, componentstatus.NewEvent(componentstatus.StatusOK))
	r.adopt(devices)
}

// reportsOperationalEvents reports whether a device's driver has GPU Operational Events.
func reportsOperationalEvents(d devicesamples.Device) bool {
	major, _, _ := strings.Cut(d.DriverVersion, ".")
	n, _ := strconv.Atoi(major)
	return n >= 615
}

func (r *gpuReceiver) read(source string, devices []devicesamples.Device, b *gpudata.Batch, d time.Duration) {
	if b.Changed {
		r.adopt(devices)
	}
	r.pair(source, devices, b)
	if source == sourceDCGM && !r.xidsOnly && r.operational.absent() &&
		slices.ContainsFunc(devices, reportsOperationalEvents) {
		r.xidsOnly = true
		r.set.Logger.Info("DCGM reports faults as XIDs only, and the GPU Operational Events of the driver cannot be read " +
			"(give the Collector access to the NVIDIA driver's library libnvidia-ml.so.1 and list the receiver in a " +
			"metrics pipeline, or set `source` to nvml)")
	}
	ctx := context.Background()
	attrs := sharedcomponent.Label("source", source)
	r.telemetry.ReceiverGpuCallDuration.Record(ctx, d.Seconds(), attrs)
	r.telemetry.ReceiverGpuValues.Add(ctx, int64(len(b.Values)), attrs)
	for reason, n := range b.Dropped {
		if n > 0 {
			r.telemetry.ReceiverGpuDropped.Add(ctx, n, r.dropAttrs[reason])
		}
	}
	if r.trouble != "" {
		r.trouble = ""
		r.set.Logger.Info("GPU source responds again", zap.String("source", source))
		componentstatus.ReportStatus(r.componentHost, componentstatus.NewEvent(componentstatus.StatusOK))
	}
	r.take(b)
	r.usesOfProcesses(devices, b)
	if r.processReader != nil {
		r.processReader.list(devices, b)
	}
	r.checkClock(source, len(devices), b, time.Now())
	r.notice(source, b)
}

func (r *gpuReceiver) late(source, op string) {
	r.failures(1, source, "timeout")
	r.warn(fmt.Errorf("%s: %s has not returned within `call_timeout` (%s)", source, op, r.cfg.CallTimeout))
}

func (r *gpuReceiver) lost(source string, err error) {
	r.failures(1, source, "read")
	r.warn(fmt.Errorf("%s: lost, will be reopened: %w", source, err))
}

func (r *gpuReceiver) unavailable(err error, d time.Duration) {
	for _, s := range r.sources {
		r.failures(1, s.Name(), "open")
	}
	r.warn(fmt.Errorf("no GPU data: %w (see the receiver's README for what each source needs)", err),
		zap.Duration("next_try", d))
}

func (r *gpuReceiver) finished(source string) {
	r.set.Logger.Info("GPU source has no more data", zap.String("source", source))
}

// warn warns when a source stops responding and whenever the reason changes; repetitions are logged
// at level debug.
func (r *gpuReceiver) warn(err error, fields ...zap.Field) {
	fields = append(fields, zap.Error(err))
	if r.trouble == err.Error() {
		r.set.Logger.Debug("GPU source still does not respond", fields...)
		return
	}
	r.trouble = err.Error()
	// auto searches for a source, and a machine without a GPU is normal. A source that was selected
	// by name, or one that had devices before, is expected to have some.
	log := r.set.Logger.Warn
	if r.cfg.Source == sourceAuto && len(r.known) == 0 {
		log = r.set.Logger.Info
	}
	log("GPU source does not respond", fields...)
	componentstatus.ReportStatus(r.componentHost, componentstatus.NewRecoverableErrorEvent(err))
}

var silentReasons = map[gpudata.Health]string{
	gpudata.HealthFailed: "the driver reports it as lost or detached",
	gpudata.HealthSilent: "every value is blank though the driver lists it (see its XIDs; it may need a reset)",
}

// judge updates the state of a device and reports when it fails or is back; mu is held.
func (r *gpuReceiver) judge(d *deviceState, h gpudata.Health) {
	before := d.health
	d.health = h
	switch reason := silentReasons[h]; {
	case reason == silentReasons[before]:
	case reason != "":
		r.set.Logger.Warn("GPU returns no values", append(deviceFields(&d.desc), zap.String("reason", reason))...)
	default:
		r.set.Logger.Info("GPU returns values again", deviceFields(&d.desc)...)
	}
}

// notice reports what is missing for longer than one read: once, again when the reason changes, and
// when it is back.
func (r *gpuReceiver) notice(source string, b *gpudata.Batch) {
	if b.Refused > 0 {
		r.failures(b.Refused, source, string(gpudata.NoticeProfiling))
	}
	now := map[string]string{}
	for _, n := range b.Notices {
		key := string(n.Kind) + " " + strings.Join(n.Devices, " ")
		now[key] = n.Err.Error()
		if r.notices[key] == now[key] {
			continue
		}
		if n.Kind != gpudata.NoticeProfiling {
			r.failures(1, source, string(n.Kind))
		}
		log := r.set.Logger.Warn
		if n.Normal {
			log = r.set.Logger.Info
		}
		log(noticeTexts[n.Kind].missing, zap.Strings("devices", n.Devices), zap.Error(n.Err))
	}
	for key := range r.notices {
		if _, still := now[key]; !still {
			kind, devices, _ := strings.Cut(key, " ")
			r.set.Logger.Info(noticeTexts[gpudata.NoticeKind(kind)].back+" again",
				zap.Strings("devices", strings.Fields(devices)))
		}
	}
	r.notices = now
}

// noticeTexts are log messages for what is missing, and for its return.
var noticeTexts = map[gpudata.NoticeKind]struct{ missing, back string }{
	gpudata.NoticeProfiling: {
		"Devices have no profiling ratios (SM, tensor, DRAM, PCIe, NVLink); the source tries again",
		"Devices have profiling ratios",
	},
	gpudata.NoticeIdentity: {
		"Devices have no data, because the source cannot identify them", "The source identifies devices",
	},
	gpudata.NoticeClock: {"Samples are not of the present time", "Samples are of the present time"},
	gpudata.NoticePermission: {
		"The driver no longer permits to read quantities of devices", "The driver permits to read quantities of devices",
	},
}

func (r *gpuReceiver) failures(n int64, source, reason string) {
	r.telemetry.ReceiverGpuFailures.Add(context.Background(), n,
		metric.WithAttributes(attribute.String("source", source), attribute.String("reason", reason)))
}
