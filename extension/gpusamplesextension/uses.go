// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"time"

	"go.opentelemetry.io/collector/component"
)

// Workload is what a resource says of the program that made a span. Empty strings and 0 mean that it does not say.
type Workload struct {
	HostID, HostName string // host.id, host.name
	Namespace, Pod   string // k8s.namespace.name, k8s.pod.name
	PodUID           string // k8s.pod.uid
	Container        string // k8s.container.name
	ContainerID      string // container.id
	PID              int64  // process.pid, as the process itself sees it
}

// DeviceUse says that a container or a process holds a device. Empty strings and 0 mean unknown.
type DeviceUse struct {
	// Device is the hw.id of the GPU or MIG instance. It is empty for a container that the kubelet lists without a
	// device: such a container is known to have none.
	Device                    string
	Namespace, Pod, Container string  // as the kubelet names them
	PodUID, ContainerID       string  // of the process's control group
	PID                       int64   // as the host counts it
	LocalPID                  int64   // as the process itself sees it; 0 where it has the host's numbers
	Parents                   []int64 // processes above it on the host, nearest first
}

// UseOrigin is one reader of device uses: what it says replaces what it said before, and nothing else.
type UseOrigin struct {
	Owner component.ID // the component
	Kind  UseKind      // of what it reads

	HostID, HostName string // of the machine that holds the devices
}

// UseKind is where uses come from.
type UseKind uint8

// The kinds of uses.
const (
	UsesOfPods      UseKind = iota // the kubelet's list of pods
	UsesOfProcesses                // the driver's list of processes
)

// UseWriter is the face of the extension for components that know who holds which device.
type UseWriter interface {
	// SetUses replaces the origin's uses by those that were found now; nil says that none are known any more. They
	// hold for twice refresh, the time after which they will be replaced; what is missing next time has ended, and
	// is remembered for `max_age` after that, for spans that come late. Uses over MaxUses are dropped and counted.
	SetUses(origin UseOrigin, uses []DeviceUse, refresh time.Duration)
}

// UseReader is the face of the extension for components that look for the devices of a span that names none.
type UseReader interface {
	// DevicesOf appends to dst the hw.id of every device that the workload held at any time between start and end
	// (unix ns), sorted and each once, and says by what they were found. More than one means that the span's work is
	// spread over several devices, or that nothing tells which of them it was on.
	//
	// The first of these that the workload names and somebody knows decides:
	//  1. its process in its container or pod, by their IDs and the process number inside, as the control groups of
	//     the processes on the devices say: of a job with a process for each device, each has its own;
	//  2. its pod, by namespace and name as the kubelet lists them, narrowed to the container where it is named; a pod
	//     or container that the kubelet lists without a device has none;
	//  3. its container or pod, by ID;
	//  4. its process on its host, or the processes below it: a server's front end often has the GPU in a child;
	//  5. its host, when that has one device. A workload without a host is on the host of the devices when these are
	//     all of one. One that names a pod is not looked for here where pods are known.
	//
	// Nothing is guessed beyond that. It allocates nothing but dst's growth and takes no lock of the rings, so it can
	// be called with or without a View.
	DevicesOf(dst []string, w *Workload, start, end int64) ([]string, FoundBy)
}

// FoundBy says what led to the devices of a workload.
type FoundBy uint8

// The ways in which a device is found.
const (
	FoundByNothing FoundBy = iota
	FoundByPod
	FoundByContainer
	FoundByProcess
	FoundByHost
)

// String is none, pod, container, process or host.
func (f FoundBy) String() string {
	return [...]string{"none", "pod", "container", "process", "host"}[min(f, FoundByHost)]
}

// MaxUses bounds the uses that are remembered, ended ones included.
const MaxUses = 16384

// FindUseWriter returns the extension id as a UseWriter.
func FindUseWriter(host component.Host, id component.ID) (UseWriter, error) {
	return find[UseWriter](host, id)
}

// FindUseReader returns the extension id as a UseReader.
func FindUseReader(host component.Host, id component.ID) (UseReader, error) {
	return find[UseReader](host, id)
}
