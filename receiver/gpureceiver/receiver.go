// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/servermetrics"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
	"github.com/otelgpu/otelgpu/semconv"
)

// gpuReceiver serves the metrics and the logs pipelines of one configuration. The engine's
// goroutine takes samples and must never wait for a pipeline, so others emit.
type gpuReceiver struct {
	cfg     *Config
	id      component.ID
	set     component.TelemetrySettings
	host    host
	version string // of the build
	metrics []*metricDef
	sources []gpudata.Source

	nextMetrics consumer.Metrics // nil without a metrics pipeline
	nextLogs    consumer.Logs    // nil without a logs pipeline
	obsrep      *receiverhelper.ObsReport
	telemetry   *metadata.TelemetryBuilder

	start, stop   sync.Once
	forget        func() // removes this instance from the factory
	startErr      error
	cancel        context.CancelFunc
	done          sync.WaitGroup
	componentHost component.Host
	samples       devicesamples.Writer        // nil: none
	divisions     devicesamples.DivisionStore // of the source samples; otherwise nil
	processes     *processes.Host             // nil: not visible from here
	wakeLogs      chan struct{}
	pods          atomic.Pointer[podresources.Devices] // nil: not known
	// processReader measures processes; nil without a metrics pipeline, or if it is disabled.
	processReader *processReader
	processSource gpudata.ProcessSource // for it; may be nil
	// unresolved states that the device of a claim was unknown. Only the goroutine that reads pods
	// uses it.
	unresolved bool

	mu      sync.Mutex
	devices map[string]*deviceState // by hw.id
	removed []*deviceState          // instances, since the last emission
	logs    plog.Logs

	// Of the engine's goroutine only.
	current  []*deviceState // by index of the batch
	known    []devicesamples.Device
	scratch  []devicesamples.Sample
	ordered  int // so many of scratch are in order of time
	events   []devicesamples.Event
	trouble  string            // the problem with the source; empty if there is none
	notices  map[string]string // reasons for missing data, by kind and devices
	xidsOnly bool              // it was logged that the source has no operational events
	clock    clockState
	// operational is also used by the goroutine that reads processes.
	operational operationalEvents
	dropAttrs   [gpudata.NumDropReasons]metric.MeasurementOption
}

// maxLogs bounds the log records that wait for a pipeline.
const maxLogs = 1024

var dropReasons = [gpudata.NumDropReasons]string{
	gpudata.DropBlank:         "blank",
	gpudata.DropStatus:        "status",
	gpudata.DropStale:         "stale",
	gpudata.DropUnknownEntity: "unknown_entity",
	gpudata.DropNotFinite:     "not_finite",
	gpudata.DropOutOfRange:    "out_of_range",
	gpudata.DropMalformed:     "malformed",
	gpudata.DropProcess:       "process_limit",
	gpudata.DropOverrun:       "overrun",
}

func newReceiver(cfg *Config, set receiver.Settings, sources []gpudata.Source) (*gpuReceiver, error) {
	tb, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	obsrep, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: set.ID, Transport: "", ReceiverCreateSettings: set,
	})
	if err != nil {
		return nil, err
	}
	r := &gpuReceiver{
		cfg: cfg, id: set.ID, set: set.TelemetrySettings, host: thisHost(), version: set.BuildInfo.Version, sources: sources,
		obsrep: obsrep, telemetry: tb,
		wakeLogs: make(chan struct{}, 1),
		devices:  map[string]*deviceState{},
		logs:     plog.NewLogs(),
		notices:  map[string]string{},
		forget:   func() {},
	}
	for i := range r.dropAttrs {
		r.dropAttrs[i] = sharedcomponent.Label("reason", dropReasons[i])
	}
	for i := range metricDefs {
		def := &metricDefs[i]
		enabled := !def.off
		if m, ok := cfg.Metrics[def.Name]; ok {
			enabled = m.Enabled
		}
		if enabled {
			r.metrics = append(r.metrics, def)
		}
	}
	return r, nil
}

// Start implements component.Component. It never waits for a device.
func (r *gpuReceiver) Start(_ context.Context, host component.Host) error {
	r.start.Do(func() { r.startErr = r.begin(host) })
	return r.startErr
}

func (r *gpuReceiver) begin(host component.Host) error {
	if r.cfg.Source == sourceSamples {
		return r.beginSamples(host)
	}
	if r.cfg.Samples != nil {
		var err error
		if r.samples, err = devicesamples.FindWriter(host, *r.cfg.Samples); err != nil {
			return err
		}
	}
	r.processes = processes.New("/proc")
	r.componentHost = host
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	if r.nextMetrics != nil && r.cfg.Processes.Enabled {
		shares, _ := r.samples.(devicesamples.ShareWriter)
		r.processReader = newProcessReader(r.cfg, r.processes, r.processSource, shares, &r.operational, r.set.Logger)
		if r.samples != nil {
			r.processReader.uses = r.setProcessUses
		}
		go r.processReader.run(ctx)
	}
	// Plain XIDs arrive with the next read of DCGM, operational events with the next read of
	// processes.
	r.operational.pairs.PlainAfter = int64(r.cfg.CollectionInterval + 2*time.Second)
	r.operational.pairs.OperationalAfter = int64(r.cfg.Processes.Interval + 2*time.Second)
	if r.processReader == nil {
		r.operational.set(false)
	}
	e := newEngine(r.cfg, r.sources, r)
	logs, end := context.WithCancel(context.WithoutCancel(ctx))
	r.done.Go(func() {
		defer end() // after the last records
		_ = e.run(ctx)
		r.flushFaults()
		r.giveUpDevices()
		r.forgetUses()
		<-ctx.Done()
	})
	if r.nextLogs != nil {
		r.done.Go(func() { emit(logs, r.wakeLogs, r.emitLogs) })
	}
	r.startEmitting(ctx)
	if k := r.cfg.Kubernetes.Get(); k != nil && (r.nextMetrics != nil || r.samples != nil) {
		r.done.Go(func() { r.followPods(ctx, k) })
	}
	return nil
}

// beginSamples starts a receiver that reads no device.
func (r *gpuReceiver) beginSamples(host component.Host) (err error) {
	if r.divisions, err = devicesamples.FindDivisions(host, *r.cfg.Samples); err != nil {
		return err
	}
	r.samples, _ = r.divisions.(devicesamples.Writer)
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.startEmitting(ctx)
	return nil
}

// startEmitting sends metrics at every collection interval.
func (r *gpuReceiver) startEmitting(ctx context.Context) {
	if r.nextMetrics == nil {
		return
	}
	ticker := time.NewTicker(r.cfg.CollectionInterval)
	r.done.Go(func() {
		defer ticker.Stop()
		var w *processWriter
		if r.processReader != nil || r.divisions != nil && r.cfg.Processes.Enabled {
			w = newProcessWriter(r)
		}
		emit(ctx, ticker.C, func(ctx context.Context) { r.emitMetrics(ctx, w) })
	})
}

// Shutdown implements component.Component. It waits for a call of the source for 3 s or
// `call_timeout`, if that is less.
func (r *gpuReceiver) Shutdown(ctx context.Context) error {
	var err error
	r.stop.Do(func() {
		r.forget()
		if r.cancel != nil {
			r.cancel()
			if err = sharedcomponent.Wait(ctx, &r.done); err != nil {
				err = fmt.Errorf("gpu receiver: %w", err)
			}
			if r.processReader != nil {
				r.processReader.wait()
			}
		}
		r.telemetry.Shutdown()
	})
	return err
}

// emit calls send at each signal until the context ends, and then once more. What is being sent
// then has further time.
func emit[T any](ctx context.Context, signal <-chan T, send func(context.Context)) {
	to, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(resend.DrainTimeout, cancel) })()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-signal:
			send(to)
		}
	}
	send(to)
}

// emitMetrics sends what is new until it is accepted, the next output is due or the context ends.
// Cumulative sums are right again with their next points.
//
// Metrics of devices and of processes, if w is not nil, are sent together: Prometheus keeps one
// series target_info for both, and accepts its points only in order.
func (r *gpuReceiver) emitMetrics(ctx context.Context, w *processWriter) {
	limited, cancel := context.WithTimeout(ctx, r.cfg.CollectionInterval)
	defer cancel()
	now := time.Now()
	md := r.collect(now)
	if w != nil {
		w.prepare(limited, now).MoveAndAppendTo(md.ResourceMetrics())
	}
	r.sendMetrics(limited, md)
}

// sendMetrics sends metrics until they are accepted or the context ends. It returns false if they
// may be accepted later.
func (r *gpuReceiver) sendMetrics(ctx context.Context, md pmetric.Metrics) bool {
	n := md.DataPointCount()
	if n == 0 {
		return true
	}
	ctx = r.obsrep.StartMetricsOp(ctx)
	err := resend.Copies(ctx, md, pmetric.NewMetrics, r.nextMetrics.ConsumeMetrics)
	r.obsrep.EndMetricsOp(ctx, metadata.Type.String(), n, err)
	return err == nil || resend.Permanent(err)
}

// collect builds the metrics of everything that is new since the last call.
func (r *gpuReceiver) collect(now time.Time) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	r.host.fill(rm.Resource())
	rm.SetSchemaUrl(semconv.SchemaURL)
	sm := rm.ScopeMetrics().AppendEmpty()
	// The scope has no version and no schema, which Prometheus makes labels of, so that a release
	// would rename all series.
	sm.Scope().SetName(metadata.ScopeName)

	r.mu.Lock()
	defer r.mu.Unlock()
	devices := make([]*deviceState, 0, len(r.devices))
	for _, id := range slices.Sorted(maps.Keys(r.devices)) {
		devices = append(devices, r.devices[id])
	}
	writer := pointWriter{now: now}
	ended := r.label(devices, r.pods.Load())
	for _, def := range r.metrics {
		m := pmetric.NewMetric()
		writer.points = def.prepare(m)
		for _, d := range devices {
			writer.labels = d.labels
			def.write(&writer, d)
		}
		if writer.points.Len() > 0 {
			m.MoveTo(sm.Metrics().AppendEmpty())
		}
		for i := range ended {
			ended[i].write(sm.Metrics(), def, now)
		}
	}
	if servers, ok := r.samples.(servermetrics.Source); ok {
		servers.ServerMetrics(sm.Metrics(), now.UnixNano())
	}
	for _, d := range devices {
		for q := range d.series {
			d.series[q].emitted()
		}
		d.reported = d.newest
	}
	return md
}

// adopt sets the devices that batches refer to. Physical GPUs that are gone have failed; instances
// that are gone were removed.
func (r *gpuReceiver) adopt(devices []devicesamples.Device) {
	if slices.EqualFunc(devices, r.known, sameDevice) && len(r.current) == len(devices) {
		return
	}
	if r.processReader != nil {
		r.processReader.meter.Adopt(devices)
	}
	r.known = devices
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := map[string]bool{} // of devices that were there, or failed before
	for id, d := range r.devices {
		gone[id], d.present = !d.present, false
	}
	r.current = r.current[:0]
	for _, desc := range devices {
		desc = desc.Valid()
		desc.HostName, desc.HostID = r.host.name, r.host.id
		d := r.devices[desc.ID]
		if d == nil {
			d = &deviceState{}
			r.devices[desc.ID] = d
		}
		if gone[desc.ID] {
			r.set.Logger.Info("GPU is back", deviceFields(&desc)...)
		}
		d.desc, d.present = desc, true
		r.register(d)
		r.current = append(r.current, d)
	}
	for id, d := range r.devices {
		if d.present {
			continue
		}
		d.giveUp()
		if d.desc.Parent != "" {
			delete(r.devices, id)
			if r.nextMetrics != nil {
				r.removed = append(r.removed, d)
			}
			continue
		}
		if !gone[id] {
			r.set.Logger.Warn("GPU removed", append(deviceFields(&d.desc),
				zap.String("reason", "the source does not list it any more"))...)
		}
		d.health = gpudata.HealthFailed
	}
}

// deviceFields identify a device in a log entry.
func deviceFields(d *devicesamples.Device) []zap.Field {
	return []zap.Field{zap.String("hw.id", d.ID), zap.String("hw.name", d.Name)}
}

func sameDevice(a, b devicesamples.Device) bool {
	return a.ID == b.ID && a.Parent == b.Parent && a.Name == b.Name && a.Model == b.Model && a.Source == b.Source &&
		a.DriverVersion == b.DriverVersion && a.PCIBDF == b.PCIBDF && a.Ordinal == b.Ordinal && a.MIG == b.MIG
}

func (r *gpuReceiver) register(d *deviceState) {
	if r.samples == nil {
		return
	}
	w, err := r.samples.Register(r.id, d.desc)
	if err != nil {
		r.set.Logger.Error("Device samples are not kept", zap.Error(err))
	}
	d.writer = w
}

func (r *gpuReceiver) giveUpDevices() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.devices {
		d.giveUp()
	}
}
