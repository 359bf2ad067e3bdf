// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
)

// A Detail is stored as fields of one tag byte, which is the field's place in code, and a value: a varint for whole
// numbers, eight bytes for floats, a varint length and bytes for strings. Only what is stated is stored, in that order,
// so most records need few bytes.

// Values of closed lists are stored as their index; 0 is none.
var (
	directions = []string{"", "host_to_device", "device_to_host", "device_to_device", "peer_to_peer", "host_to_host"}
	memories   = []string{"", "pageable", "pinned", "managed"}
	precisions = append([]string{""}, peaks.Precisions()...)
)

// maxDetail bounds a string of a detail; longer ones (shapes of thousands of tensors) are left out.
const maxDetail = 32 << 10

// tagElements is the last of the fields that only operators of known work have; they come first.
const tagElements = 3

// code writes or reads all fields.
func (d *Detail) code(c *coder) {
	c.float(&d.FLOPs, nil)
	c.float(&d.Traffic, nil)
	c.float(&d.Elements, nil)
	c.id(&d.Signature)
	c.member(&d.Precision, precisions)
	if c.reads && len(c.b) == 0 {
		return
	}
	c.number(&d.Step, &d.HasStep)
	c.number(&d.Bytes, &d.HasBytes)
	c.member(&d.Direction, directions)
	c.member(&d.HostMemory, memories)
	if c.field(&d.HasGrid, false) {
		for i := range 3 {
			c.varint(&d.Grid[i])
			c.varint(&d.Block[i])
		}
	}
	if c.field(&d.HasResources, false) {
		c.varint(&d.Registers)
		c.varint(&d.SharedMemory)
	}
	c.float(&d.BlocksPerSM, nil)
	c.float(&d.WarpsPerSM, nil)
	c.float(&d.Occupancy, &d.HasOccupancy)
	if c.reads && len(c.b) == 0 { // as mostly
		return
	}
	c.text(&d.Collective)
	c.text(&d.Group)
	c.number(&d.GroupSize, nil)
	c.text(&d.ElementType)
	c.number(&d.InElements, nil)
	c.number(&d.OutElements, nil)
	c.number(&d.Graph, nil)
	c.number(&d.GraphNode, nil)
	c.field(&d.WholeGraph, false)
	c.text(&d.Shapes)
	c.text(&d.Types)
	c.text(&d.Domain)
	c.text(&d.Category)
	c.text(&d.TraceParent)
	c.id(&d.Requests)
	c.number(&d.RequestsLost, nil)
	c.text(&d.Payload)
	c.text(&d.PayloadText)
	c.number(&d.MemoryUsage, &d.HasMemoryUsage)
	c.number(&d.MemoryDevice, nil)
	c.id(&d.Launches)
}

func (d *Detail) appendTo(b []byte) []byte {
	if *d == (Detail{}) {
		return b
	}
	c := coder{b: b}
	d.code(&c)
	return c.b
}

// decode reads what appendTo wrote. The record never leaves the program's own memory and files, so that a broken one is
// a fault of this package: decoding stops there.
func (d *Detail) decode(b []byte) {
	if len(b) > 0 {
		d.code(&coder{b: b, reads: true})
	}
}

// coder writes fields behind b, or reads them from it.
type coder struct {
	b     []byte
	tag   byte // of the present field
	reads bool
}

// field begins a field, and reports whether it is stated: by the Detail's word for that where it has one, else as it is
// not zero.
func (c *coder) field(word *bool, is bool) bool {
	if c.tag++; word == nil {
		word = &is
	}
	if c.reads {
		if *word = len(c.b) > 0 && c.b[0] == c.tag; *word {
			c.b = c.b[1:]
		}
	} else if *word {
		c.b = append(c.b, c.tag)
	}
	return *word
}

func (c *coder) varint(v *int64) {
	if !c.reads {
		c.b = binary.AppendVarint(c.b, *v)
		return
	}
	var n int
	*v, n = binary.Varint(c.b)
	c.b = c.b[max(n, 0):]
}

func (c *coder) number(v *int64, word *bool) {
	if c.field(word, *v != 0) {
		c.varint(v)
	}
}

func (c *coder) id(v *uint32) {
	n := int64(*v)
	c.number(&n, nil)
	*v = uint32(n)
}

func (c *coder) member(v *string, of []string) {
	i := int64(max(0, slices.Index(of, *v)))
	if c.number(&i, nil); c.reads && i > 0 && i < int64(len(of)) {
		*v = of[i]
	}
}

func (c *coder) float(v *float64, word *bool) {
	switch {
	case !c.field(word, *v != 0):
	case !c.reads:
		c.b = binary.LittleEndian.AppendUint64(c.b, math.Float64bits(*v))
	case len(c.b) < 8:
		c.b = nil
	default:
		*v = math.Float64frombits(binary.LittleEndian.Uint64(c.b))
		c.b = c.b[8:]
	}
}

func (c *coder) text(v *string) {
	if !c.field(nil, *v != "" && len(*v) <= maxDetail) {
		return
	}
	if !c.reads {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
		return
	}
	n, k := binary.Uvarint(c.b)
	if k <= 0 || uint64(len(c.b)-k) < n {
		c.b = nil
		return
	}
	*v = string(c.b[k : k+int(n)])
	c.b = c.b[k+int(n):]
}
