// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/component"
)

// ShareWindow is how the energy of a physical GPU was divided in a time, in Unix nanoseconds. It is
// not changed after it was added.
type ShareWindow struct {
	From, To int64
	Users    []DeviceShare
}

// DeviceShare is the share of a process or a pod. Its Device may be a MIG instance.
type DeviceShare struct {
	*DeviceUse
	Share    float64 // of the physical GPU's energy, with its part of the idle energy; from 0 to 1
	Error    float64 // of Share
	Resident float64 // share of the time in which its kernels ran
}

// ShareWriter is implemented by the extension for components that know how processes share devices.
type ShareWriter interface {
	// AddShares adds a window of a physical GPU that begins when the last one ends, or later.
	AddShares(device string, w ShareWindow)
}

// ShareReader is implemented by the extension for gpu_join.
type ShareReader interface {
	// Shares appends the windows that overlap [from, to], in time order.
	Shares(device string, from, to int64, dst []ShareWindow) []ShareWindow
}

// maxShareWindows bounds the windows of a device in memory: 4 minutes at 250 ms.
const maxShareWindows = 1024

// shareTable keeps the windows of devices.
type shareTable struct {
	mu      sync.Mutex
	windows map[string][]ShareWindow // by NormalizeID
}

// AddShares implements ShareWriter.
func (st *Store) AddShares(device string, w ShareWindow) {
	t := &st.shares
	t.mu.Lock()
	defer t.mu.Unlock()
	id := NormalizeID(device)
	if t.windows == nil {
		t.windows = map[string][]ShareWindow{}
	}
	list := t.windows[id]
	if list == nil && len(t.windows) >= st.maxDevices {
		return
	}
	if n := len(list); n > 0 && w.From < list[n-1].To {
		list = list[:0:0] // the clock was set back
	}
	if len(list) >= maxShareWindows {
		list = append(list[:0:0], list[maxShareWindows/4:]...)
	}
	t.windows[id] = append(list, w)
}

// Shares implements ShareReader.
func (st *Store) Shares(device string, from, to int64, dst []ShareWindow) []ShareWindow {
	st.shares.mu.Lock()
	defer st.shares.mu.Unlock()
	list := st.shares.windows[NormalizeID(device)]
	for i := len(list) - 1; i >= 0 && list[i].To > from; i-- {
		if list[i].From < to {
			dst = append(dst, list[i])
		}
	}
	slices.Reverse(dst)
	return dst
}

// Division is how the energy of a physical GPU was divided since it was seen first, in joules. Its
// parts sum to the device's energy in that time, and only grow.
type Division struct {
	Device       Device
	Time         int64      // up to which energy is divided, in Unix nanoseconds
	Idle         [2]float64 // without and with a context
	Unattributed float64
	Users        []DividedUse
}

// DividedUse is what a pod has used of a device beyond its idle energy.
type DividedUse struct {
	*DeviceUse
	On            Device // the physical GPU, or the instance
	ID            int64  // differs between the users of a device
	Joules, Error float64
	Utilization   float64 // share of time since the last reading; negative if unknown
	Bytes         int64   // of device memory; negative if unknown
}

// DivisionStore is implemented by the extension for components that divide the energy of devices,
// and the receiver that writes the result.
type DivisionStore interface {
	// SetDivisions sets where the divisions of a component are read; nil removes it.
	SetDivisions(owner component.ID, read func() []Division)
	// Divisions returns the divisions of all components.
	Divisions() []Division
}

// divisionTable implements DivisionStore.
type divisionTable struct {
	mu  sync.Mutex
	all map[component.ID]func() []Division
}

// SetDivisions implements DivisionStore.
func (t *divisionTable) SetDivisions(owner component.ID, read func() []Division) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[component.ID]func() []Division{}
	}
	if t.all[owner] = read; read == nil {
		delete(t.all, owner)
	}
}

// Divisions implements DivisionStore.
func (t *divisionTable) Divisions() (all []Division) {
	t.mu.Lock()
	readers := slices.Collect(maps.Values(t.all))
	t.mu.Unlock()
	for _, read := range readers {
		all = append(all, read()...)
	}
	return all
}

// Match is how surely a workload is a user of a device.
type Match uint8

// From no match to the best one.
const (
	MatchNone    Match = iota
	MatchGroup         // a process of its container or pod
	MatchChild         // a process below it on the host
	MatchProcess       // the process itself
)

// Match compares a user of a device on a host with a workload, by the rules of UseReader.DevicesOf.
func (u *DeviceUse) Match(w *Workload, hostID, hostName string) Match {
	group := MatchNone
	switch {
	case w.ContainerID != "" && u.ContainerID != "":
		if w.ContainerID != u.ContainerID {
			return MatchNone
		}
		group = MatchGroup
	case w.PodUID != "" && u.PodUID != "":
		if w.PodUID != u.PodUID {
			return MatchNone
		}
		group = MatchGroup
	case w.Pod != "" && u.Pod != "":
		if w.Pod != u.Pod || w.Namespace != u.Namespace {
			return MatchNone
		}
		if group = MatchGroup; w.Container != "" && u.Container != "" && w.Container != u.Container {
			return MatchNone
		}
	case w.ContainerID != "" || w.PodUID != "" || w.Pod != "":
		return MatchNone // the user is not known to be in it
	}
	if w.PID == 0 || u.PID == 0 {
		return group
	}
	if group == MatchGroup {
		if cmp.Or(u.LocalPID, u.PID) == w.PID {
			return MatchProcess
		}
		return group
	}
	if !onHost(w, hostID, hostName) || u.LocalPID != 0 && u.LocalPID != u.PID {
		return MatchNone // the workload states no container, and numbers its processes by the host
	}
	if u.PID == w.PID {
		return MatchProcess
	}
	if slices.Contains(u.Parents, w.PID) {
		return MatchChild
	}
	return MatchNone
}
