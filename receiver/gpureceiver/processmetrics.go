// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/processenergy"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/startpoint"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processmeter"
	"github.com/otelgpu/otelgpu/semconv"
)

// processSeries are the series of one process on one device, or of one device.
type processSeries struct {
	host       string
	attributes pcommon.Map
	start      int64
	// base is what is subtracted from counters: a series whose attributes change ends, and the next
	// one begins at 0.
	base, last map[string]float64 // by metric
	begun      bool               // a point of 0 of each counter was accepted
	points     map[string]bool    // metrics that had a point
	written    bool               // with this emission
}

// processSeriesKey identifies series; the zero process is the device.
type processSeriesKey struct {
	board   string
	rest    string // reason for unattributed energy
	context bool
	process processenergy.Key
}

// processWriter turns readings into metrics. Only the goroutine that emits uses it.
type processWriter struct {
	r          *gpuReceiver
	series     map[processSeriesKey]*processSeries
	enabled    map[string]*metricDef
	node       string
	containers map[string]processes.Container // nil: unknown
	warned     map[string]bool

	// Of the present emission.
	now    int64
	before int64 // time of points of 0
	zeros  output
	values output
}

func newProcessWriter(r *gpuReceiver) *processWriter {
	w := &processWriter{
		r: r, series: map[processSeriesKey]*processSeries{},
		enabled: map[string]*metricDef{}, node: os.Getenv("OTELGPU_NODE_NAME"), warned: map[string]bool{},
	}
	for _, def := range r.metrics {
		w.enabled[def.name] = def
	}
	return w
}

// prepare returns the use of devices by processes. Points of 0 of counters that begin are sent
// first, because a store must not have a later point before them. If they are not accepted, it
// returns nothing, and these series begin again with the next output.
func (w *processWriter) prepare(ctx context.Context, now time.Time) pmetric.ResourceMetricsSlice {
	zeros, md := w.collect(now)
	if !w.r.sendMetrics(ctx, zeros) {
		return pmetric.NewResourceMetricsSlice()
	}
	for _, s := range w.series {
		s.begun = s.begun || s.written
	}
	if md.DataPointCount() == 0 {
		return pmetric.NewResourceMetricsSlice()
	}
	return md.ResourceMetrics()
}

// collect returns the use of devices by processes, and apart from it the points of 0 of counters
// that begin.
func (w *processWriter) collect(now time.Time) (zeros, md pmetric.Metrics) {
	w.zeros, w.values = newOutput(), newOutput()
	w.now = now.UnixNano()
	w.before = w.now - int64(startpoint.Before(w.r.cfg.CollectionInterval))
	w.nameContainers()
	for _, s := range w.series {
		s.written = false
	}
	for _, reading := range w.readings() {
		if reading.Time == 0 {
			continue // nothing is divided yet
		}
		w.device(&reading)
		for i := range reading.Processes {
			w.process(&reading.Device, &reading.Processes[i])
		}
	}
	for key, s := range w.series {
		if !s.written {
			w.end(s)
			delete(w.series, key)
		}
	}
	return w.zeros.Metrics, w.values.Metrics
}

// readings returns what processes have used, or pods whose use another component has measured.
func (w *processWriter) readings() (all []processmeter.Reading) {
	if w.r.processReader != nil {
		return w.r.processReader.meter.Read(w.now)
	}
	for _, d := range w.r.divisions.Divisions() {
		r := processmeter.Reading{Device: d.Device, Time: d.Time, Idle: d.Idle, Unattributed: d.Unattributed}
		for _, u := range d.Users {
			p := processmeter.Process{
				Device: u.On, Key: processenergy.Key{Start: u.ID}, Joules: u.Joules, Error: u.Error, HasEnergy: true,
				Utilization: u.Utilization, Bytes: u.Bytes, Facts: processes.Facts{
					PodUID: u.PodUID, Container: processes.Container{Namespace: u.Namespace, Pod: u.Pod},
				},
			}
			r.Processes = append(r.Processes, p)
		}
		all = append(all, r)
	}
	return all
}

// output is metrics by the host of the devices.
type output struct {
	pmetric.Metrics
	hosts map[string]metricsByName
}

func newOutput() output { return output{pmetric.NewMetrics(), map[string]metricsByName{}} }

// into returns where points of devices of a host are added. Only devices of other components may be
// of another host.
func (w *processWriter) into(to *output, hostName string) metricsByName {
	if m, ok := to.hosts[hostName]; ok {
		return m
	}
	rm := to.ResourceMetrics().AppendEmpty()
	attributes := rm.Resource().Attributes()
	own := hostName == "" || hostName == w.r.host.name
	if own {
		w.r.host.fill(rm.Resource())
	} else {
		attributes.PutStr(string(semconv.HostNameKey), hostName)
	}
	if own || hostName == w.node {
		sharedcomponent.PutText(attributes, semconv.K8sNodeNameKey, w.node)
	}
	rm.SetSchemaUrl(semconv.SchemaURL)
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.Scope().SetName(metadata.ScopeName)
	m := metricsByName{sm.Metrics(), map[string]pmetric.NumberDataPointSlice{}}
	to.hosts[hostName] = m
	return m
}

// metricsByName are metrics and their points.
type metricsByName struct {
	pmetric.MetricSlice
	points map[string]pmetric.NumberDataPointSlice
}

// device writes the energy of a device that no process has.
func (w *processWriter) device(r *processmeter.Reading) {
	for i, joules := range r.Idle {
		context := i == 1
		if joules == 0 {
			continue
		}
		attributes := pcommon.NewMap()
		identify(attributes, &r.Device)
		attributes.PutBool(string(semconv.GPUIdleContextKey), context)
		idle := processSeriesKey{board: r.Device.ID, context: context, process: processenergy.Key{PID: -1}}
		w.counter(w.seriesOf(idle, &r.Device, attributes), semconv.GPUIdleEnergyName, joules)
	}
	w.unattributed(r, semconv.GPUUnattributedReasonUnexplained, r.Unattributed-r.Beyond)
	if r.Beyond > 0 {
		w.unattributed(r, semconv.GPUUnattributedReasonProcessLimit, r.Beyond)
	}
	if r.Dropped > 0 {
		w.r.telemetry.ReceiverGpuDropped.Add(context.Background(), r.Dropped, w.r.dropAttrs[gpudata.DropProcess])
		w.warnOnce("limit", "More processes used a GPU between two outputs than it may have, and the energy of further ones "+
			"is unattributed (raise `processes::max_per_device`)", zap.String("hw.id", r.Device.ID),
			zap.Int("max_per_device", w.r.cfg.Processes.MaxPerDevice))
	}
}

func (w *processWriter) unattributed(r *processmeter.Reading, reason string, joules float64) {
	attributes := pcommon.NewMap()
	identify(attributes, &r.Device)
	attributes.PutStr(string(semconv.GPUUnattributedReasonKey), reason)
	s := w.seriesOf(processSeriesKey{board: r.Device.ID, rest: reason}, &r.Device, attributes)
	w.counter(s, semconv.GPUUnattributedEnergyName, joules)
}

func (w *processWriter) process(board *devicesamples.Device, p *processmeter.Process) {
	key := processSeriesKey{board: board.ID, process: p.Key}
	if p.Ended { // and the last point has all its energy
		return
	}
	aPod := p.Key.PID == 0
	if w.r.processes == nil && p.Executable == "" && !w.warned["host"] && !aPod {
		w.warned["host"] = true
		w.r.set.Logger.Info("Processes on GPUs have no program, user, container or job, because the host's processes are " +
			"not visible (run the Collector on the host, or in a pod with `hostPID: true`)")
	}
	if !w.warned["hidden"] && !aPod && p.ContainerID == "" && w.r.processes.Hides(p.Key.PID) {
		w.warnOnce("hidden", "Processes on GPUs have no program, container or job, because /proc hides them (give the "+
			"Collector the capability SYS_PTRACE, run it as root, or mount /proc without `hidepid`)")
	}
	attributes := pcommon.NewMap()
	identify(attributes, &p.Device)
	if !aPod {
		attributes.PutInt(string(semconv.ProcessPidKey), p.Key.PID)
	}
	sharedcomponent.PutText(attributes, semconv.ProcessExecutableNameKey, p.Executable)
	sharedcomponent.PutText(attributes, semconv.ProcessOwnerKey, p.Owner)
	sharedcomponent.PutText(attributes, semconv.ContainerIDKey, p.ContainerID)
	sharedcomponent.PutText(attributes, semconv.K8sPodUidKey, p.PodUID)
	sharedcomponent.PutText(attributes, semconv.GPUJobIDKey, p.Job())
	if c, ok := w.container(p); ok {
		attributes.PutStr(string(semconv.K8sNamespaceNameKey), c.Namespace)
		attributes.PutStr(string(semconv.K8sPodNameKey), c.Pod)
		sharedcomponent.PutText(attributes, semconv.K8sContainerNameKey, c.Name)
	}
	s := w.seriesOf(key, board, attributes)
	if p.HasEnergy {
		w.counter(s, semconv.GPUProcessEnergyName, p.Joules)
		w.counter(s, semconv.GPUProcessEnergyErrorName, p.Error)
	}
	if p.Utilization >= 0 {
		w.gauge(s, semconv.GPUProcessUtilizationName).SetDoubleValue(p.Utilization)
	}
	if p.Bytes != gpudata.BytesUnknown {
		w.gauge(s, semconv.GPUProcessMemoryUsageName).SetIntValue(p.Bytes)
	}
}

func (w *processWriter) warnOnce(key, message string, fields ...zap.Field) {
	if !w.warned[key] {
		w.warned[key] = true
		w.r.set.Logger.Warn(message, fields...)
	}
}

// nameContainers reads the names of the containers of this node, if the configuration asks for
// pods.
func (w *processWriter) nameContainers() {
	k := w.r.cfg.Kubernetes.Get()
	if k == nil {
		return
	}
	names, err := processes.Containers(k.ContainerLogs)
	if err != nil {
		w.warnOnce("containers", "Processes on shared GPUs have a container ID and a pod UID, but no names of pods (mount "+
			"the node's folder /var/log/containers read-only, or set `kubernetes::container_logs`)", zap.Error(err))
	}
	w.containers = names
	w.r.processReader.meter.Name(names)
}

// container returns the container of a process: by the names of its log, otherwise the one to which
// the kubelet assigned the device, if it has only one.
func (w *processWriter) container(p *processmeter.Process) (processes.Container, bool) {
	if c, ok := w.containers[p.ContainerID]; ok {
		return c, true
	}
	if p.Facts.Container.Pod != "" {
		return p.Facts.Container, true
	}
	pods := w.r.pods.Load()
	if pods == nil || w.r.processes != nil && p.PodUID == "" {
		return processes.Container{}, false // a process of the host
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	d := w.r.devices[p.Device.ID]
	if d == nil {
		return processes.Container{}, false
	}
	owner, ok := w.r.owner(pods, d)
	return containerOf(owner), ok
}

func containerOf(p podresources.Pod) processes.Container {
	return processes.Container{Namespace: p.Namespace, Pod: p.Name, Name: p.Container}
}

// seriesOf returns the series with a key, new ones if the attributes have changed.
func (w *processWriter) seriesOf(
	key processSeriesKey, board *devicesamples.Device, attributes pcommon.Map,
) *processSeries {
	s, base := w.series[key], map[string]float64{}
	if s != nil && (!s.attributes.Equal(attributes) || s.host != board.HostName) {
		w.end(s)
		s, base = nil, s.last
	}
	if s == nil {
		s = &processSeries{host: board.HostName, attributes: attributes, start: w.before, base: base}
	}
	if !s.written {
		s.written, s.last, s.points = true, map[string]float64{}, map[string]bool{}
	}
	w.series[key] = s
	return s
}

func (w *processWriter) point(out *output, s *processSeries, name string, t int64) pmetric.NumberDataPoint {
	to := w.into(out, s.host)
	points, ok := to.points[name]
	if !ok {
		points = pmetric.NewNumberDataPointSlice()
		if def := w.enabled[name]; def != nil {
			points = def.prepare(to.AppendEmpty())
		}
		to.points[name] = points
	}
	s.points[name] = true
	p := points.AppendEmpty()
	s.attributes.CopyTo(p.Attributes())
	p.SetTimestamp(pcommon.Timestamp(t))
	return p
}

func (w *processWriter) gauge(s *processSeries, name string) pmetric.NumberDataPoint {
	return w.point(&w.values, s, name, w.now)
}

// counter writes a value, and before the first one a point of 0.
func (w *processWriter) counter(s *processSeries, name string, v float64) {
	if !s.begun {
		s.start = w.before
		zero := w.point(&w.zeros, s, name, s.start)
		zero.SetStartTimestamp(pcommon.Timestamp(s.start))
		zero.SetDoubleValue(0)
	}
	p := w.point(&w.values, s, name, w.now)
	p.SetStartTimestamp(pcommon.Timestamp(s.start))
	p.SetDoubleValue(v - s.base[name])
	s.last[name] = v
}

// end writes a point without a value for each metric of series, in a separate metric like
// endedSeries.write.
func (w *processWriter) end(s *processSeries) {
	for name := range s.points {
		def := w.enabled[name]
		if def == nil {
			continue
		}
		p := def.prepare(w.into(&w.values, s.host).AppendEmpty()).AppendEmpty()
		s.attributes.CopyTo(p.Attributes())
		p.SetStartTimestamp(pcommon.Timestamp(s.start))
		p.SetTimestamp(pcommon.Timestamp(w.now))
		p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	}
}
