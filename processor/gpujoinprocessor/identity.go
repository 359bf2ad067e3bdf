// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"hash/maphash"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/semconv"
)

// resourceInfo holds the values of a resource that the join needs.
type resourceInfo struct {
	process uint64
	group   uint64 // of processes that may share IDs: the job of a rank, otherwise the service; 0: none
	// sharesIDs means that other processes of the group send spans with equal IDs, see [sharedIDs].
	sharesIDs bool
	server    uint64 // of requests: the service with a known load; 0: none
	load      string // the name of that load
	service   string
	loads     *loads  // nil if server is 0
	weight    float64 // of requests: how many each represents, as stated by the resource
	workload  devicesamples.Workload
}

// identifier computes process identities. The seed lives as long as the processor, because numbers
// are compared within it only.
type identifier struct {
	seed   maphash.Seed
	loads  *loads
	shared *sharedIDs
}

// The attributes that identify a process: an instance ID alone, or otherwise a process ID with what
// identifies its machine or container.
var (
	instanceKeys = [...]string{"service.namespace", "service.name", "service.instance.id"}
	jobKeys      = [...]string{string(semconv.GPUJobIDKey)}
	processKeys  = [...]string{"process.pid", "host.id", "host.name", "container.id", "k8s.pod.uid", "k8s.pod.name"}
)

// resource reads a resource. A process is identified by service.instance.id (with service.name and
// service.namespace); otherwise by process.pid with host and container; otherwise by all attributes
// of the resource together. Always using all attributes was rejected: one process may have several
// providers whose resources differ in details.
func (i identifier) resource(attrs pcommon.Map) resourceInfo {
	var r resourceInfo
	instance, pid, ranked, service := false, false, false, ""
	for k, v := range attrs.All() {
		switch k {
		case "host.id":
			r.workload.HostID = v.Str()
		case "host.name":
			r.workload.HostName = v.Str()
		case string(semconv.ServiceNameKey):
			service = v.Str()
		case string(semconv.GPURequestSamplingRatioKey):
			r.weight = weightOf(v)
		case "service.instance.id":
			instance = v.Type() != pcommon.ValueTypeStr || v.Str() != ""
		case string(semconv.GPUJobRankKey):
			ranked = true
		case "process.pid":
			pid = true
			r.workload.PID = v.Int()
		case "k8s.namespace.name":
			r.workload.Namespace = v.Str()
		case "k8s.pod.name":
			r.workload.Pod = v.Str()
		case "k8s.pod.uid":
			r.workload.PodUID = v.Str()
		case "k8s.container.name":
			r.workload.Container = v.Str()
		case "container.id":
			r.workload.ContainerID = v.Str()
		}
	}
	r.service = service
	if name, ok := i.loads.of(service); ok {
		r.load, r.server, r.loads = name, i.loads.server(i.seed, name), i.loads
	}
	switch {
	case instance:
		r.process = i.of(attrs, instanceKeys[:])
	case pid:
		r.process = i.of(attrs, processKeys[:])
	default:
		for k, v := range attrs.All() {
			r.process += i.pair(k, v) // a sum, because the order of attributes has no meaning
		}
	}
	switch {
	case ranked:
		r.group = i.of(attrs, jobKeys[:])
	case instance || pid:
		r.group = i.of(attrs, instanceKeys[:2])
	}
	r.sharesIDs = i.shared.contains(r.group)
	return r
}

func (i identifier) of(attrs pcommon.Map, keys []string) (sum uint64) {
	for _, k := range keys {
		if v, ok := attrs.Get(k); ok {
			sum += i.pair(k, v)
		}
	}
	return sum
}

func (i identifier) pair(k string, v pcommon.Value) uint64 {
	var h maphash.Hash
	h.SetSeed(i.seed)
	h.WriteString(k)
	h.WriteByte(0)
	h.WriteString(v.AsString())
	return h.Sum64()
}
