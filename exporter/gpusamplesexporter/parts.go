// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// waiting is the outcome of a point that is decided at the end of the batch.
const waiting = numOutcomes

// reading is a point of a known metric and device.
type reading struct {
	start, t int64
	v        float64
	delta    bool
	newUnits bool // it comes with names that exist since DCGM 4.7 only
	part     part
	job      string // gpu.job.id
	target   string // pod of the exporter, if the series also names the pod that uses the device
	copied   bool   // of the board, in the series of an instance
}

// groupKey identifies the points of one metric of one device at one time.
type groupKey struct {
	rule *rule
	t    int64
}

type group struct {
	groupKey
	points []reading
}

// dividedFor is the time after which the only series of a device is its own again, after it was
// divided among pods.
const dividedFor = int64(5 * time.Minute)

// maxParts bounds the workloads of a device.
const maxParts = 128

// add keeps a point until all series of its metric are known.
func (d *device) add(r *rule, p *reading, labels, resource pcommon.Map, copied bool) {
	p.copied = copied
	if !copied {
		p.part, p.target = ownerOf(labels, resource)
		p.job = jobOf(labels, resource)
	}
	if mode, ok := labels.Get("gpu_compute_partition_type"); ok && !strings.EqualFold(mode.AsString(), "spx") {
		d.partitioned = true
	}
	d.newest = max(d.newest, p.t)
	k := groupKey{r, p.t}
	g := d.groups[k]
	if g == nil {
		g = &group{groupKey: k}
		d.groups[k] = g
		d.points = append(d.points, g)
	}
	g.points = append(g.points, *p)
}

// ownerOf returns the pod or process that the labels of a series name. Prometheus prefixes labels
// of an exporter with exported_ if they collide with the labels of its target, which then name the
// exporter's pod.
func ownerOf(labels, resource pcommon.Map) (owner part, target string) {
	get := func(keys ...string) string {
		for _, k := range keys {
			if v, ok := labels.Get(k); ok && v.AsString() != "" {
				return v.AsString()
			}
		}
		return ""
	}
	owner = part{
		Namespace: get("exported_namespace", "namespace", "pod_namespace", "k8s.namespace.name"),
		Pod:       get("exported_pod", "pod", "pod_name", "k8s.pod.name"),
		PodUID:    get("pod_uid", "k8s.pod.uid"),
		Container: get("exported_container", "container", "container_name", "k8s.container.name"),
		Replica:   get("vgpu"), ContainerID: get("container.id"),
	}
	owner.PID, _ = strconv.ParseInt(get("process.pid"), 10, 64)
	if get("exported_pod") != "" {
		target = get("pod")
	} else if pod, ok := resource.Get("k8s.pod.name"); ok && pod.AsString() == owner.Pod {
		owner.Pod = "" // the target's own
	}
	if owner.Pod == "" && owner.PodUID == "" && owner.PID == 0 && owner.Replica == "" {
		return whole, target // the namespace and container of an exporter, or none
	}
	return owner, target
}

// jobOf returns gpu.job.id of a series or its resource. dcgm-exporter has the number of a Slurm
// job.
func jobOf(labels, resource pcommon.Map) string {
	for _, m := range []pcommon.Map{labels, resource} {
		if v, ok := m.Get(string(semconv.GPUJobIDKey)); ok && v.AsString() != "" {
			return spanfacts.Clip(v.AsString())
		}
	}
	if v, ok := labels.Get("hpc_job"); ok && v.AsString() != "" {
		return spanfacts.Clip("slurm-" + v.AsString())
	}
	return ""
}

// part is the workload that a series names. Empty strings and 0 mean unknown.
type part struct {
	Namespace, Pod, PodUID, Container string // of a pod that shares the device
	Replica                           string // number of the device plugin's replica, as its exporter names it
	ContainerID                       string // of a process
	PID                               int64  // of a process, as the host counts it
}

// whole is the part of a series that names no workload.
var whole part

// settle decides which points of the batch are values of the device, and which are parts or copies
// of them.
func (d *device) settle(counts *[numOutcomes]int64) {
	for _, g := range d.points {
		d.decide(g, counts)
		delete(d.groups, g.groupKey)
	}
	d.points = d.points[:0]
}

// decide writes the points of a metric at one time. A series that names no pod and no process is
// the device's. If there is none, the series of pods are copies of the device's as long as they
// agree: dcgm-exporter writes one for each pod that uses a device. With KUBERNETES_VIRTUAL_GPUS the
// utilization and the memory are each pod's own.
func (d *device) decide(g *group, counts *[numOutcomes]int64) {
	f := g.rule.field
	for i := range g.points {
		// The device's own series names the exporter's pod only, which the others name besides
		// their own.
		p := &g.points[i]
		if p.part.Pod != "" && slices.ContainsFunc(g.points, func(o reading) bool { return o.target == p.part.Pod }) {
			p.part = whole
		}
	}
	hasWhole := d.whole[f] == g.t
	for i := range g.points {
		p := &g.points[i]
		own := p.part == whole && !p.copied && !g.rule.part
		if own {
			hasWhole = true
			d.whole[f] = max(d.whole[f], g.t)
			counts[d.take(g.rule, p)]++
		}
		if p.job != "" || !own && p.part.Pod != "" {
			d.addOwner(p, g.t)
		}
	}
	// A quantity of a higher rank is copied for each pod, also of a divided device.
	divided := (f == gpuquantity.Utilization || f == gpuquantity.MemoryUsed) && g.rule.rank == 0 &&
		slices.ContainsFunc(g.points, func(p reading) bool { return p.part != whole && p.part.PID == 0 })
	if divided {
		if hasWhole || slices.ContainsFunc(g.points, func(p reading) bool { return p.v != g.points[0].v }) {
			d.divided[f] = max(d.divided[f], g.t)
		} else {
			// Idle pods of a divided device agree, too.
			divided = d.divided[f] != 0 && (len(g.points) > 1 || g.t-d.divided[f] <= dividedFor)
		}
	}
	taken := hasWhole
	for i := range g.points {
		p := &g.points[i]
		switch {
		case p.part == whole && !p.copied && !g.rule.part:
		case p.copied && taken:
			counts[duplicate]++
		case g.rule.part, p.part.PID != 0 && !p.copied, divided && !p.copied:
			counts[d.addPart(g.rule, p)]++
		case taken:
			counts[duplicate]++
		default:
			taken = true
			counts[d.take(g.rule, p)]++
		}
	}
	if !divided && !g.rule.part {
		d.share(g)
	}
}

// addPart adds what one pod has of a device to the pods' shares. Values of a process are only kept
// apart from the device's.
func (d *device) addPart(r *rule, p *reading) outcome {
	if r.field.Kind() == gpuquantity.Counter || p.part == whole {
		return duplicate
	}
	v, o := d.convert(r, p)
	if o != written {
		return o
	}
	if p.part.Pod != "" && p.part.PID == 0 {
		d.shares.add(&d.desc, &p.part, r.field, p.t, v, 1)
	}
	return partWritten
}

// share adds the device's own value to the pods that its series name: a whole device or an instance
// has one, and older exporters copy the value for each of several.
func (d *device) share(g *group) {
	if g.rule.rank+1 != d.best[g.rule.field] || d.partitioned {
		return
	}
	var owners []part
	for i := range g.points {
		p := &g.points[i]
		o := part{Namespace: p.part.Namespace, Pod: p.part.Pod, PodUID: p.part.PodUID}
		if o.Pod != "" && p.part.PID == 0 && !p.copied && !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
	}
	for i := range owners {
		if v, o := d.convert(g.rule, &g.points[0]); o == written {
			d.shares.add(&d.desc, &owners[i], g.rule.field, g.t, v, len(owners))
		}
	}
}

// machine is a host with devices.
type machine struct{ id, name string }

// hostUses is when the uses of a host's devices were written.
type hostUses struct {
	newest  int64         // time of the newest points
	refresh time.Duration // between two of them
	written bool
}

const (
	// firstRefresh is the time for which uses are valid before the interval of scrapes is known.
	firstRefresh = time.Minute
	leastRefresh = 10 * time.Second
	mostRefresh  = 10 * time.Minute
)

// addOwner notes a pod or a job that uses the device at time t.
func (d *device) addOwner(p *reading, t int64) {
	if t > d.owned {
		d.owners, d.owned = d.owners[:0], t
	}
	o := owner{p.part.Namespace, p.part.Pod, p.part.PodUID, p.part.Container, p.job}
	if t == d.owned && len(d.owners) < maxParts && !slices.Contains(d.owners, o) {
		d.owners = append(d.owners, o)
	}
}

// owner is a pod or a job that uses a device.
type owner struct{ namespace, pod, podUID, container, job string }

// writeUses writes which pods and jobs use which devices, by the labels of the newest points of
// each host's devices.
func (x *writer) writeUses() {
	out, ok := x.out.(devicesamples.UseWriter)
	if !ok {
		return
	}
	newest := map[machine]int64{}
	for _, d := range x.devices {
		h := machine{d.desc.HostID, d.desc.HostName}
		newest[h] = max(newest[h], d.newest)
	}
	uses := map[machine][]devicesamples.DeviceUse{}
	for h, t := range newest {
		u := x.uses[h]
		if u == nil {
			u = &hostUses{refresh: firstRefresh}
			x.uses[h] = u
		}
		if t <= u.newest {
			continue
		}
		if u.newest > 0 {
			u.refresh = min(max(time.Duration(t-u.newest), leastRefresh), mostRefresh)
		}
		u.newest = t
		uses[h] = []devicesamples.DeviceUse{}
	}
	for _, d := range x.devices {
		h := machine{d.desc.HostID, d.desc.HostName}
		// A pod that the newest points of its device no longer name has ended.
		if list, ok := uses[h]; ok && d.owned == d.newest {
			for _, o := range d.owners {
				list = append(list, devicesamples.DeviceUse{
					Device: d.desc.ID, Namespace: o.namespace, Pod: o.pod, Container: o.container, PodUID: o.podUID, Job: o.job,
				})
			}
			uses[h] = list
		}
	}
	for h, list := range uses {
		if u := x.uses[h]; len(list) > 0 || u.written {
			u.written = true
			out.SetUses(x.useOrigin(h), list, u.refresh)
		}
	}
	for h := range x.uses {
		if _, ok := newest[h]; !ok {
			x.forgetHost(h)
		}
	}
}

func (x *writer) useOrigin(h machine) devicesamples.UseOrigin {
	return devicesamples.UseOrigin{
		Owner: x.id, Kind: devicesamples.UsesOfPods, HostID: h.id, HostName: h.name,
	}
}

func (x *writer) forgetHost(h machine) {
	if out, ok := x.out.(devicesamples.UseWriter); ok && x.uses[h].written {
		out.SetUses(x.useOrigin(h), nil, 0)
	}
	delete(x.uses, h)
}

func (x *writer) forgetUses() {
	for h := range x.uses {
		x.forgetHost(h)
	}
}
