// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
)

// Workload identifies the program that produced a span, from its resource. Empty strings and 0 mean
// unknown.
type Workload struct {
	HostID, HostName string // host.id, host.name
	Namespace, Pod   string // k8s.namespace.name, k8s.pod.name
	PodUID           string // k8s.pod.uid
	Container        string // k8s.container.name
	ContainerID      string // container.id
	PID              int64  // process.pid, as the process itself sees it
}

// DeviceUse records that a container or a process uses a device. Empty strings and 0 mean unknown.
type DeviceUse struct {
	Device                    string  // hw.id of the GPU or MIG instance
	Namespace, Pod, Container string  // as the kubelet names them
	PodUID, ContainerID       string  // of the process's control group
	Job                       string  // gpu.job.id: of the process's control group, or of an exporter's labels
	PID                       int64   // as the host counts it
	LocalPID                  int64   // as the process itself sees it; 0 if equal to PID
	Parents                   []int64 // processes above it on the host, nearest first
}

// TimedUse is a use from the time when it may have begun until it was listed last, in Unix
// nanoseconds. One that was in the first list has always existed.
type TimedUse struct {
	*DeviceUse
	From, Seen int64
}

// UseLister is the interface of the extension for components that account for the time of devices.
type UseLister interface {
	// Uses appends the uses of a device to dst, ended ones included.
	Uses(dst []TimedUse, device string) []TimedUse
}

// UseOrigin identifies one reader of device uses: its new uses replace its earlier ones, and
// nothing else.
type UseOrigin struct {
	Owner component.ID // the component
	Kind  UseKind      // of the uses

	HostID, HostName string // of the devices' machine
}

// UseKind is the kind of source that uses are read from.
type UseKind uint8

// The kinds of uses.
const (
	UsesOfPods      UseKind = iota // the kubelet's list of pods, or the labels of an exporter that reads it
	UsesOfProcesses                // the driver's list of processes
)

// UseWriter is the interface of the extension for components that know which workload uses which
// device.
type UseWriter interface {
	// SetUses replaces the uses of an origin; nil means that none are known any more. Uses are
	// valid for twice refresh, the time until the next call. A use that is missing from the next
	// call has ended, and is remembered for another `max_age`, for late spans. Uses over MaxUses
	// are dropped and counted.
	SetUses(origin UseOrigin, uses []DeviceUse, refresh time.Duration)
}

// UseReader is the interface of the extension for components that look up the devices of a span
// that names none.
type UseReader interface {
	// DevicesOf appends to dst the hw.id of every device that the workload used at any time between
	// start and end (Unix nanoseconds), sorted and without duplicates, and returns how they were
	// found. More than one device means that the span's work is spread over several, or that it is
	// unknown which of them it used.
	//
	// The first of these that is known decides:
	//  1. its process in its container or pod, by their IDs and the process number inside, from the control groups of
	//     the processes on the devices: in a job with one process per device, each gets its device;
	//  2. its pod, by namespace and name as the kubelet lists them, and its container if known;
	//  3. its container or pod, by ID;
	//  4. its process on its host, or its descendants: a server's front end often uses the GPU in a child process;
	//  5. its host, if that has one device, unless other pods are known to use it. A workload without a host is on the
	//     host of the devices if they are all on one host.
	//
	// A pod or container that the kubelet lists without a device is not known to have none: it may
	// have a claim that cannot be resolved, or a privileged container's access to all devices.
	//
	// DevicesOf never guesses. It allocates only to grow dst and does not lock the rings, so it can
	// be called with or without a View.
	DevicesOf(dst []string, w *Workload, start, end int64) ([]string, FoundBy)
}

// FoundBy is how the devices of a workload were found.
type FoundBy uint8

// The ways in which a device is found.
const (
	FoundByNothing   FoundBy = iota // unknown devices
	FoundByPod                      // by the pod, as the kubelet lists it
	FoundByContainer                // by the ID of the container or pod
	FoundByProcess                  // by the process on its host
	FoundByHost                     // by the host, which has one device
)

// String returns none, pod, container, process or host.
func (f FoundBy) String() string {
	return [...]string{"none", "pod", "container", "process", "host"}[min(f, FoundByHost)]
}

// MaxUses is the maximum number of uses in memory, ended ones included.
const MaxUses = 16384

// useTable keeps which workload used which device, and when. Writers replace the whole index;
// readers take no lock.
type useTable struct {
	maxAge  int64
	now     func() time.Time
	dropped *atomic.Int64 // uses over MaxUses

	mu      sync.Mutex
	origins map[UseOrigin]*useList

	index atomic.Pointer[useIndex] // nil: nothing set yet
}

// useList holds the uses of one origin.
type useList struct{ uses []*heldUse }

// heldUse is a use and the time for which it is known.
type heldUse struct {
	DeviceUse
	hostID, hostName string
	from, until      int64
	seen             int64 // when it was listed last
	early            int64 // by how much it may have begun before from
}

// useKey identifies a use.
type useKey struct {
	device, namespace, pod, container, podUID, containerID, job string
	pid, localPID                                               int64
}

func (u *DeviceUse) key() useKey {
	return useKey{u.Device, u.Namespace, u.Pod, u.Container, u.PodUID, u.ContainerID, u.Job, u.PID, u.LocalPID}
}

// onHost reports whether the workload may be on the use's host: it names that host, or none.
func onHost(w *Workload, hostID, hostName string) bool {
	if w.HostID != "" && hostID != "" {
		return w.HostID == hostID
	}
	if w.HostName != "" && hostName != "" {
		return w.HostName == hostName
	}
	return true
}

// useIndex is an immutable view of all uses.
type useIndex struct {
	byPod    map[podName][]*heldUse
	byGroup  map[string][]*heldUse // by container ID, and by pod UID
	byPID    map[int64][]*heldUse  // processes with the host's numbers
	byParent map[int64][]*heldUse  // the same by each process above them
	byDevice map[string][]*heldUse // by NormalizeID
}

type podName struct{ namespace, name string }

// labelDelay is how old the labels of pods can be: dcgm-exporter reads the pods when it collects,
// every 30 s by default, and is scraped later.
const labelDelay = 40 * time.Second

func (t *useTable) set(origin UseOrigin, uses []DeviceUse, refresh time.Duration) {
	now := t.now().UnixNano()
	holds := now + 2*int64(refresh)
	early := int64(0)
	if origin.Kind == UsesOfPods {
		early = max(0, int64(labelDelay-refresh))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list, known := t.origins[origin], true
	if list == nil {
		list, known = &useList{}, false
		t.origins[origin] = list
	}
	next := list.uses[:0:0]
	continued := map[useKey]int{} // uses that existed at the last read
	for _, u := range list.uses {
		if u.until+t.maxAge < now {
			continue
		}
		if u.until > holds { // the clock was set back
			set := *u
			set.from, set.until, set.seen = min(u.from, now), now, min(u.seen, now)
			u = &set
		}
		if u.until >= now {
			continued[u.key()] = len(next)
		}
		next = append(next, u)
	}
	room := MaxUses - len(next)
	for o, other := range t.origins {
		if o != origin {
			room -= len(other.uses)
		}
	}
	for i := range uses {
		if k, ok := continued[uses[i].key()]; ok {
			u := *next[k] // a copy, because readers hold the old one
			u.from, u.until, u.seen, u.Parents = min(u.from, now-int64(refresh)), holds, now, uses[i].Parents
			next[k] = &u
			continue
		}
		if room <= 0 {
			t.dropped.Add(1)
			continue
		}
		room--
		// The same use after an interruption is another one: its process number may have been
		// reused.
		u := &heldUse{
			DeviceUse: uses[i], hostID: origin.HostID, hostName: origin.HostName,
			from: now - int64(refresh), until: holds, seen: now, early: early,
		}
		if !known {
			u.from = math.MinInt64 // it existed before the first read
		}
		next = append(next, u)
	}
	list.uses = next
	if len(next) == 0 && uses == nil {
		delete(t.origins, origin)
	}
	t.index.Store(t.build())
}

// build builds the index; mu is held.
func (t *useTable) build() *useIndex {
	x := &useIndex{
		byPod: map[podName][]*heldUse{}, byGroup: map[string][]*heldUse{},
		byPID: map[int64][]*heldUse{}, byParent: map[int64][]*heldUse{}, byDevice: map[string][]*heldUse{},
	}
	for _, list := range t.origins {
		for _, u := range list.uses {
			id := NormalizeID(u.Device)
			x.byDevice[id] = append(x.byDevice[id], u)
			if u.Pod != "" {
				name := podName{u.Namespace, u.Pod}
				x.byPod[name] = append(x.byPod[name], u)
			}
			for _, id := range [...]string{u.ContainerID, u.PodUID} {
				if id != "" {
					x.byGroup[id] = append(x.byGroup[id], u)
				}
			}
			if u.PID == 0 || (u.LocalPID != 0 && u.LocalPID != u.PID) {
				continue
			}
			x.byPID[u.PID] = append(x.byPID[u.PID], u)
			for _, p := range u.Parents {
				x.byParent[p] = append(x.byParent[p], u)
			}
		}
	}
	return x
}

// find implements UseReader up to the process on its host.
func (t *useTable) find(dst []string, w *Workload, start, end int64) (ids []string, by FoundBy) {
	x := t.index.Load()
	if x == nil {
		return dst, FoundByNothing
	}
	q := useQuery{w: w, start: start, end: end, ids: dst, base: len(dst)}
	groups := [...][]*heldUse{x.byGroup[w.ContainerID], x.byGroup[w.PodUID]}
	if w.PID != 0 {
		for _, uses := range groups {
			if q.add(uses, func(u *heldUse) bool { return u.PID != 0 && cmp.Or(u.LocalPID, u.PID) == w.PID }) {
				return q.ids, FoundByProcess
			}
		}
	}
	if w.Pod != "" && q.add(x.byPod[podName{w.Namespace, w.Pod}], q.sameContainer) {
		return q.ids, FoundByPod
	}
	for _, uses := range groups {
		if q.add(uses, func(*heldUse) bool { return true }) {
			return q.ids, FoundByContainer
		}
	}
	if w.PID != 0 {
		// The number of a process in a pod is the host's only if the pod shares the host's process
		// namespace.
		here := func(u *heldUse) bool {
			return onHost(w, u.hostID, u.hostName) && (w.ContainerID == "" || u.ContainerID == w.ContainerID) &&
				(w.Pod == "" || u.PodUID != "" && (w.PodUID == "" || u.PodUID == w.PodUID))
		}
		if q.add(x.byPID[w.PID], here) || q.add(x.byParent[w.PID], here) {
			return q.ids, FoundByProcess
		}
	}
	return q.ids, FoundByNothing
}

// othersUse reports whether a device is known to be used by pods in [start, end], but not by the
// workload's.
func (t *useTable) othersUse(device string, w *Workload, start, end int64) bool {
	x := t.index.Load()
	if x == nil || w.Pod == "" {
		return false
	}
	q := useQuery{w: w, start: start, end: end}
	others := false
	for _, u := range x.byDevice[NormalizeID(device)] {
		if u.Pod != "" && q.during(u) {
			if u.Namespace == w.Namespace && u.Pod == w.Pod && q.sameContainer(u) {
				return false
			}
			others = true
		}
	}
	return others
}

// Uses implements UseLister.
func (st *Store) Uses(dst []TimedUse, device string) []TimedUse {
	if x := st.uses.index.Load(); x != nil {
		for _, u := range x.byDevice[NormalizeID(device)] {
			dst = append(dst, TimedUse{&u.DeviceUse, u.from, u.seen})
		}
	}
	return dst
}

// useQuery collects the devices of one workload.
type useQuery struct {
	w          *Workload
	start, end int64
	ids        []string
	base       int // number of ids before
}

func (q *useQuery) during(u *heldUse) bool {
	return (u.from <= q.end || u.from-u.early <= q.end) && u.until >= q.start
}

func (q *useQuery) sameContainer(u *heldUse) bool {
	return q.w.Container == "" || u.Container == "" || u.Container == q.w.Container
}

// add appends the devices of the uses that match, sorted and without duplicates, and reports
// whether there were any.
func (q *useQuery) add(uses []*heldUse, match func(*heldUse) bool) bool {
	for _, u := range uses {
		if !q.during(u) || !match(u) {
			continue
		}
		if i, found := slices.BinarySearch(q.ids[q.base:], u.Device); !found {
			q.ids = slices.Insert(q.ids, q.base+i, u.Device)
		}
	}
	return len(q.ids) > q.base
}
