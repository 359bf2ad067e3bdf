// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

// log queues the log record of an event; mu is held. A full queue drops and counts.
func (r *gpuReceiver) log(d *deviceState, e devicesamples.Event) {
	if r.nextLogs == nil {
		return
	}
	n := r.logs.LogRecordCount()
	if n >= maxLogs {
		r.telemetry.ReceiverGpuDropped.Add(context.Background(), 1, sharedcomponent.Label("reason", "queue_full"))
		return
	}
	if n == 0 {
		rl := r.logs.ResourceLogs().AppendEmpty()
		r.host.fill(rl.Resource())
		sl := rl.ScopeLogs().AppendEmpty()
		sl.SetSchemaUrl(semconv.SchemaURL)
		sl.Scope().SetName(metadata.ScopeName)
		sl.Scope().SetVersion(r.version)
	}
	rec := r.logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().AppendEmpty()
	identify(rec.Attributes(), &d.desc)
	rec.SetTimestamp(pcommon.Timestamp(e.Time))
	rec.SetObservedTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	describeEvent(rec, d, e)
}

func describeEvent(rec plog.LogRecord, d *deviceState, e devicesamples.Event) {
	reason := devicesamples.ThrottleReason(e.Code).String()
	set := func(event string, severity plog.SeverityNumber, key attribute.Key, value, body string) {
		rec.SetEventName(event)
		rec.SetSeverityNumber(severity)
		rec.SetSeverityText(severity.String())
		rec.Body().SetStr(cmp.Or(d.desc.Name, d.desc.ID) + ": " + body)
		sharedcomponent.PutText(rec.Attributes(), key, value)
	}
	switch e.Kind {
	case devicesamples.EventXID:
		set(semconv.GPUXIDEventName, plog.SeverityNumberError, "", "", fmt.Sprintf("XID %d", e.Code))
		rec.Attributes().PutInt(string(semconv.GPUEventCodeKey), e.Code)
		putFault(rec.Attributes(), &e.Fault)
	case devicesamples.EventFault:
		set(semconv.GPUFaultEventName, faultSeverity(&e.Fault), "", "", strings.TrimSpace(fmt.Sprintf("%s %s: %s, %s",
			e.Fault.Module, e.Fault.CodeName(), e.Fault.CategoryName(), e.Fault.SeverityName())))
		putFault(rec.Attributes(), &e.Fault)
	case devicesamples.EventECCCorrected:
		set(semconv.GPUECCEventName, plog.SeverityNumberWarn, semconv.ErrorTypeKey, semconv.ErrorTypeECCCorrected,
			fmt.Sprintf("%d corrected memory errors", e.Count))
	case devicesamples.EventECCUncorrected:
		set(semconv.GPUECCEventName, plog.SeverityNumberError, semconv.ErrorTypeKey, semconv.ErrorTypeECCUncorrected,
			fmt.Sprintf("%d uncorrected memory errors", e.Count))
	case devicesamples.EventThrottleStart:
		set(semconv.GPUThrottleEventName, plog.SeverityNumberInfo, semconv.GPUThrottleReasonKey, reason,
			"clocks throttled: "+reason)
	case devicesamples.EventThrottleEnd:
		set(semconv.GPUThrottleEventName, plog.SeverityNumberInfo, semconv.GPUThrottleReasonKey, reason,
			"clocks no longer throttled: "+reason)
	}
}

// faultSeverity returns the severity of an operational event; one that is unknown is a warning.
func faultSeverity(f *devicesamples.Fault) plog.SeverityNumber {
	switch f.SeverityName() {
	case "informational":
		return plog.SeverityNumberInfo
	case "recoverable":
		return plog.SeverityNumberError
	case "fatal":
		return plog.SeverityNumberFatal
	}
	return plog.SeverityNumberWarn
}

// putFault writes what the driver reports about a fault, if it does.
func putFault(to pcommon.Map, f *devicesamples.Fault) {
	if *f == (devicesamples.Fault{}) {
		return
	}
	sharedcomponent.PutText(to, semconv.GPUFaultModuleKey, f.Module)
	to.PutStr(string(semconv.GPUFaultCategoryKey), f.CategoryName())
	to.PutStr(string(semconv.GPUFaultCodeKey), f.CodeName())
	to.PutStr(string(semconv.GPUFaultSeverityKey), f.SeverityName())
}

// emitLogs sends the waiting log records until they are accepted or the context ends.
func (r *gpuReceiver) emitLogs(ctx context.Context) {
	r.mu.Lock()
	logs := r.logs
	n := logs.LogRecordCount()
	if n > 0 {
		r.logs = plog.NewLogs()
	}
	r.mu.Unlock()
	if n == 0 || r.nextLogs == nil {
		return
	}
	spanfacts.ValidLogs(logs)
	ctx = r.obsrep.StartLogsOp(ctx)
	err := resend.Copies(ctx, logs, plog.NewLogs, r.nextLogs.ConsumeLogs)
	r.obsrep.EndLogsOp(ctx, metadata.Type.String(), n, err)
	if err != nil {
		r.set.Logger.Error("log records of GPUs are lost", zap.Int("records", n), zap.Error(err))
	}
}

// host is the machine that the receiver runs on: what device data from here belongs to.
type host struct{ name, id string }

func thisHost() host {
	res, _ := resource.New(context.Background(), resource.WithHost(), resource.WithHostID()) // as far as known
	value := func(k attribute.Key) string {
		v, _ := res.Set().Value(k)
		return v.AsString()
	}
	return host{name: value(semconv.HostNameKey), id: value(semconv.HostIDKey)}
}

func (h host) fill(res pcommon.Resource) {
	sharedcomponent.PutText(res.Attributes(), semconv.HostNameKey, h.name)
	sharedcomponent.PutText(res.Attributes(), semconv.HostIDKey, h.id)
}

// identify writes the identity that every data point and log record of a device carries.
func identify(m pcommon.Map, d *devicesamples.Device) {
	m.EnsureCapacity(12)
	m.PutStr(string(semconv.HWIDKey), d.ID)
	m.PutStr(string(semconv.HWTypeKey), semconv.HWTypeGPU)
	sharedcomponent.PutText(m, semconv.HWModelKey, d.Model)
	sharedcomponent.PutText(m, semconv.HWNameKey, d.Name)
	sharedcomponent.PutText(m, semconv.HWVendorKey, d.Vendor)
	sharedcomponent.PutText(m, semconv.HWDriverVersionKey, d.DriverVersion)
	sharedcomponent.PutText(m, semconv.HWParentKey, d.Parent)
	sharedcomponent.PutText(m, semconv.GPUPCIBDFKey, devicesamples.NormalizePCI(d.PCIBDF))
	if d.Ordinal >= 0 {
		m.PutInt(string(semconv.GPUDeviceOrdinalKey), int64(d.Ordinal))
	}
	sharedcomponent.PutText(m, semconv.GPUMeasurementSourceKey, d.Source)
}
