// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"encoding/binary"
	"hash/maphash"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
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
			r.workload.PID = max(0, spanfacts.Whole(v))
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

// sharedIDs are the groups of processes that send spans with equal IDs: the ranks of a job, whose
// trainer seeds the generator of IDs alike, or the processes of a service, which were forked after
// seeding. From the first such span on, their spans have parents in their own process only. In
// general a parent may be in another process, so the process is no part of a span's identity while
// IDs are unique.
type sharedIDs struct {
	mu     sync.Mutex
	groups map[uint64]bool
}

// maxSharing bounds the groups.
const maxSharing = 1 << 12

func (s *sharedIDs) contains(group uint64) bool {
	if s == nil || group == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[group]
}

// add returns false if the group is known, or cannot be.
func (s *sharedIDs) add(group uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[group] || len(s.groups) >= maxSharing {
		return false
	}
	if s.groups == nil {
		s.groups = map[uint64]bool{}
	}
	s.groups[group] = true
	return true
}

// own returns the ID of a span within its process, if the process shares IDs with others.
func (r *resourceInfo) own(id [8]byte) [8]byte {
	if r.sharesIDs && id != ([8]byte{}) {
		binary.LittleEndian.PutUint64(id[:], binary.LittleEndian.Uint64(id[:])^r.process)
	}
	return id
}

// Flags of a span that state whether its parent is in another process.
const remoteKnown, remoteParent = 0x100, 0x200

// ownParent returns the parent of a span as own does. A parent in another process keeps its ID.
func (r *resourceInfo) ownParent(s ptrace.Span, parent [8]byte) [8]byte {
	if s.Flags()&(remoteKnown|remoteParent) == remoteKnown|remoteParent {
		return parent
	}
	return r.own(parent)
}

// checkedElsewhere is how many spans of a request are compared with the spans of other physical
// GPUs: processes that share IDs share nearly all of them.
const checkedElsewhere = 16

// findSharedIDs finds processes that send other spans with IDs that are known, and returns true if
// there are new ones: then the request must be read again. The caller holds the lock, and the spans
// have their hashes.
func (e *engine) findSharedIDs(b *batch) (found bool) {
	checked := 0
	for i, p := range b.joinable() {
		r := p.res
		if r.group == 0 || r.sharesIDs {
			continue
		}
		other := p.board.dev.OtherSpan(&b.shares[i])
		if !other && len(e.boards) > 1 && checked < checkedElsewhere {
			checked++
			for _, o := range e.boards {
				other = other || o.dev.OtherSpan(&b.shares[i])
			}
		}
		if other && e.shared.add(r.group) {
			found = true
		}
	}
	for i := range b.spans {
		g := &b.spans[i]
		if r := b.targets.list[g.target].res; r.group != 0 && !r.sharesIDs && e.otherWaits(b, g) && e.shared.add(r.group) {
			found = true
		}
	}
	return found
}

// reunite moves what waits for spans by the IDs that they shared to the spans.
func (e *engine) reunite(b *batch) {
	for i, p := range b.joinable() {
		if p.res.sharesIDs {
			k := b.spans[i].Key
			span := k.Span
			k.Span = p.res.own(span) // applied twice, it is the ID on the wire
			p.board.dev.Pass(k, span)
		}
	}
}
