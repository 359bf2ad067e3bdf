// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
)

// A Detail is stored as fields of one tag byte and a value: a varint for integers, eight bytes for
// floats, a varint length and bytes for strings. Only stated values are stored, so most records
// need few bytes. AppendTo and Decode list the fields twice, because one list that does both takes
// 170 ns more for each event, a tenth of the time of reading a profile.
const (
	tagStep byte = iota + 1
	tagBytes
	tagDirection
	tagHostMemory
	tagGrid
	tagResources
	tagBlocksPerSM
	tagWarpsPerSM
	tagOccupancy
	tagCollective
	tagGroup
	tagGroupSize
	tagElementType
	tagInElements
	tagOutElements
	tagGraph
	tagGraphNode
	tagFLOPs
	tagShapes
	tagTypes
	tagDomain
	tagTraceParent
	tagPayload
	tagPayloadText
	tagMemoryUsage
	tagMemoryDevice
	tagPrecision
	tagWholeGraph
	tagCategory
	tagTraffic
	tagSignature
	tagRequests
	tagRequestsLost
	tagLaunches
	tagElements
	tagGroupID
	tagSequence
	tagPeer
	tagScalars
	tagOperator
	tagModules
)

// Values of closed lists are stored as their index; 0 is none.
var (
	directions = [...]string{"", "host_to_device", "device_to_host", "device_to_device", "peer_to_peer", "host_to_host"}
	memories   = [...]string{"", "pageable", "pinned", "managed"}
)

// precisions are the values of gpu.flop.precision; 0 is none.
var precisions = append([]string{""}, peaks.Precisions()...)

// maxDetail bounds a string of a detail; longer ones (shapes of thousands of tensors) are omitted.
const maxDetail = 32 << 10

func index(list []string, v string) int64 { return int64(max(0, slices.Index(list, v))) }

func member(list []string, i int64) string {
	if i < 0 || i >= int64(len(list)) {
		return ""
	}
	return list[i]
}

// AppendTo appends the stated values in the form that Decode reads.
func (d *Detail) AppendTo(b []byte) []byte {
	number := func(tag byte, v int64, on bool) {
		if on {
			b = binary.AppendVarint(append(b, tag), v)
		}
	}
	float := func(tag byte, v float64, on bool) {
		if on {
			b = binary.LittleEndian.AppendUint64(append(b, tag), math.Float64bits(v))
		}
	}
	text := func(tag byte, v string) {
		if v != "" && len(v) <= maxDetail {
			b = binary.AppendUvarint(append(b, tag), uint64(len(v)))
			b = append(b, v...)
		}
	}
	float(tagFLOPs, d.FLOPs, d.FLOPs != 0) // these three first: see StatedWork
	float(tagTraffic, d.Traffic, d.Traffic != 0)
	float(tagElements, d.Elements, d.Elements != 0)
	number(tagSignature, int64(d.Signature), d.Signature != 0)
	number(tagPrecision, index(precisions, d.Precision), d.Precision != "")
	number(tagStep, d.Step, d.HasStep)
	number(tagBytes, d.Bytes, d.HasBytes)
	number(tagDirection, index(directions[:], d.Direction), d.Direction != "")
	number(tagHostMemory, index(memories[:], d.HostMemory), d.HostMemory != "")
	if d.HasGrid {
		b = append(b, tagGrid)
		for i := range 3 {
			b = binary.AppendVarint(b, d.Grid[i])
			b = binary.AppendVarint(b, d.Block[i])
		}
	}
	if d.HasResources {
		b = binary.AppendVarint(append(b, tagResources), d.Registers)
		b = binary.AppendVarint(b, d.SharedMemory)
	}
	number(tagScalars, d.Scalars, d.Scalars != 0)
	number(tagOperator, int64(d.Operator), d.Operator != 0)
	number(tagModules, int64(d.Modules), d.Modules != 0)
	float(tagBlocksPerSM, d.BlocksPerSM, d.BlocksPerSM != 0)
	float(tagWarpsPerSM, d.WarpsPerSM, d.WarpsPerSM != 0)
	float(tagOccupancy, d.Occupancy, d.HasOccupancy)
	text(tagCollective, d.Collective)
	text(tagGroup, d.Group)
	number(tagGroupID, int64(d.GroupID), d.GroupID != 0)
	number(tagSequence, d.Sequence, d.HasSequence)
	number(tagPeer, d.Peer, d.HasPeer)
	number(tagGroupSize, d.GroupSize, d.GroupSize != 0)
	text(tagElementType, d.ElementType)
	number(tagInElements, d.InElements, d.InElements != 0)
	number(tagOutElements, d.OutElements, d.OutElements != 0)
	number(tagGraph, d.Graph, d.Graph != 0)
	number(tagGraphNode, d.GraphNode, d.GraphNode != 0)
	number(tagWholeGraph, 1, d.WholeGraph)
	text(tagShapes, d.Shapes)
	text(tagTypes, d.Types)
	text(tagDomain, d.Domain)
	text(tagCategory, d.Category)
	text(tagTraceParent, d.TraceParent)
	number(tagRequests, int64(d.Requests), d.Requests != 0)
	number(tagRequestsLost, d.RequestsLost, d.RequestsLost > 0)
	text(tagPayload, d.Payload)
	text(tagPayloadText, d.PayloadText)
	number(tagMemoryUsage, d.MemoryUsage, d.HasMemoryUsage)
	number(tagMemoryDevice, d.MemoryDevice, d.MemoryDevice != 0)
	number(tagLaunches, int64(d.Launches), d.Launches != 0)
	return b
}

// Decode reads what appendTo wrote. The record never leaves the program's own memory and files, so
// that a broken one is a fault of this package: decoding stops there.
func (d *Detail) Decode(b []byte) {
	number := func() int64 {
		v, n := binary.Varint(b)
		b = b[max(n, 0):]
		return v
	}
	float := func() float64 {
		if len(b) < 8 {
			b = nil
			return 0
		}
		v := math.Float64frombits(binary.LittleEndian.Uint64(b))
		b = b[8:]
		return v
	}
	text := func() string {
		n, k := binary.Uvarint(b)
		if k <= 0 || uint64(len(b)-k) < n {
			b = nil
			return ""
		}
		s := string(b[k : k+int(n)])
		b = b[k+int(n):]
		return s
	}
	for len(b) > 0 {
		tag := b[0]
		b = b[1:]
		switch tag {
		case tagStep:
			d.Step, d.HasStep = number(), true
		case tagBytes:
			d.Bytes, d.HasBytes = number(), true
		case tagDirection:
			d.Direction = member(directions[:], number())
		case tagHostMemory:
			d.HostMemory = member(memories[:], number())
		case tagGrid:
			d.HasGrid = true
			for i := range 3 {
				d.Grid[i], d.Block[i] = number(), number()
			}
		case tagResources:
			d.HasResources = true
			d.Registers, d.SharedMemory = number(), number()
		case tagScalars:
			d.Scalars = number()
		case tagOperator:
			d.Operator = uint32(number())
		case tagModules:
			d.Modules = uint32(number())
		case tagBlocksPerSM:
			d.BlocksPerSM = float()
		case tagWarpsPerSM:
			d.WarpsPerSM = float()
		case tagOccupancy:
			d.Occupancy, d.HasOccupancy = float(), true
		case tagCollective:
			d.Collective = text()
		case tagGroup:
			d.Group = text()
		case tagGroupID:
			d.GroupID = uint32(number())
		case tagSequence:
			d.Sequence, d.HasSequence = number(), true
		case tagPeer:
			d.Peer, d.HasPeer = number(), true
		case tagGroupSize:
			d.GroupSize = number()
		case tagElementType:
			d.ElementType = text()
		case tagInElements:
			d.InElements = number()
		case tagOutElements:
			d.OutElements = number()
		case tagGraph:
			d.Graph = number()
		case tagGraphNode:
			d.GraphNode = number()
		case tagFLOPs:
			d.FLOPs = float()
		case tagWholeGraph:
			d.WholeGraph = number() == 1
		case tagShapes:
			d.Shapes = text()
		case tagTypes:
			d.Types = text()
		case tagDomain:
			d.Domain = text()
		case tagCategory:
			d.Category = text()
		case tagTraceParent:
			d.TraceParent = text()
		case tagRequests:
			d.Requests = uint32(number())
		case tagRequestsLost:
			d.RequestsLost = number()
		case tagPayload:
			d.Payload = text()
		case tagPayloadText:
			d.PayloadText = text()
		case tagMemoryUsage:
			d.MemoryUsage, d.HasMemoryUsage = number(), true
		case tagMemoryDevice:
			d.MemoryDevice = number()
		case tagElements:
			d.Elements = float()
		case tagLaunches:
			d.Launches = uint32(number())
		case tagTraffic:
			d.Traffic = float()
		case tagSignature:
			d.Signature = uint32(number())
		case tagPrecision:
			d.Precision = member(precisions, number())
		default:
			return
		}
	}
}

// StatedWork decodes the work that an operator's record states; false for most.
func (r *Record) StatedWork() (d Detail, ok bool) {
	if r.Kind != KindOperator || len(r.Detail) == 0 ||
		r.Detail[0] != tagFLOPs && r.Detail[0] != tagTraffic && r.Detail[0] != tagElements {
		return d, false
	}
	d.Decode(r.Detail)
	return d, true
}
