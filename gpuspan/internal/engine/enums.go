// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/otelgpu/otelgpu/semconv"

// Direction is where a copy went (gpu.copy.direction).
type Direction uint8

// Directions; zero means that the section is no copy, or that its bytes moved over device memory.
const (
	DirectionUnset Direction = iota
	HostToDevice
	DeviceToHost
	DeviceToDevice
	PeerToPeer
	HostToHost
	directions
)

var directionNames = [directions]string{
	HostToDevice:   semconv.GPUCopyDirectionHostToDevice,
	DeviceToHost:   semconv.GPUCopyDirectionDeviceToHost,
	DeviceToDevice: semconv.GPUCopyDirectionDeviceToDevice,
	PeerToPeer:     semconv.GPUCopyDirectionPeerToPeer,
	HostToHost:     semconv.GPUCopyDirectionHostToHost,
}

// String is the value of gpu.copy.direction; empty when not stated.
func (d Direction) String() string { return nameIn(directionNames[:], uint8(d)) }

// nameIn is the i-th name, and empty where there is none.
func nameIn(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return ""
}

// HostMemory is the kind of host memory of a copy (gpu.copy.host_memory).
type HostMemory uint8

// Kinds of host memory; zero means not stated.
const (
	MemoryUnset HostMemory = iota
	Pinned                 // page-locked: copies run at the link's rate and beside other work
	Pageable               // copied through a staging buffer
)

var hostMemoryNames = []string{
	Pinned: semconv.GPUCopyHostMemoryPinned, Pageable: semconv.GPUCopyHostMemoryPageable,
}

// String is the value of gpu.copy.host_memory; empty when not stated.
func (m HostMemory) String() string { return nameIn(hostMemoryNames, uint8(m)) }
