// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"slices"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
)

// field is a DCGM field of the catalogue.
type field struct {
	gpuquantity.Field
	quantity gpuquantity.Quantity
	better   uint16 // the field that this one replaces if a device lacks it; 0: none
	index    int    // in deviceState.last
}

// byID returns the meaning of a field, and listed the fields of each pace, by number.
var byID, listed = func() (map[uint16]*field, map[gpuquantity.Pace][]uint16) {
	fields, lists := map[uint16]*field{}, map[gpuquantity.Pace][]uint16{}
	for _, q := range gpuquantity.All() {
		better := uint16(0)
		for _, f := range q.Info().DCGM { // by rank
			if f.Pace == gpuquantity.Unread {
				continue
			}
			fields[f.ID] = &field{Field: f, quantity: q, better: better, index: len(fields)}
			lists[f.Pace] = append(lists[f.Pace], f.ID)
			if f.Rank == 0 && f.Pace == gpuquantity.Fast {
				better = f.ID
			}
		}
	}
	for _, list := range lists {
		slices.Sort(list)
	}
	return fields, lists
}()

// newInDCGM46 reports whether an older host engine refuses the field, and with it the whole field
// group.
func newInDCGM46(id uint16) bool { return byID[id] != nil && byID[id].Since46 }

const (
	// fieldXID carries the number of the last XID. Its samples are events.
	fieldXID = 230
	// fieldProcesses has a sample for each process that computes on a device. DCGM's header names
	// it internal; a library that does not know it, or lists no process there, costs nothing.
	fieldProcesses = 221
)

// Fields that describe a device.
const (
	fieldDriver    = 1
	fieldModel     = 50
	fieldNVMLIndex = 52
	fieldUUID      = 54
	fieldMinor     = 55
	// fieldMIGAttributes has the SMs of each instance of a board.
	fieldMIGAttributes = 75
	fieldPCI           = 57
	// fieldPowerInstant is absent, or 0, if only a mean of the power is known.
	fieldPowerInstant = 157
	fieldPowerLimit   = 164
	fieldPCIeMaxGen   = 235
	fieldPCIeMaxWidth = 236
	fieldFBTotal      = 250
)

// describing are the fields that are read once: the description of a device, and the fields that
// others can replace.
var describing = func() []uint16 {
	list := []uint16{
		fieldDriver, fieldModel, fieldNVMLIndex, fieldUUID, fieldMinor, fieldPCI, fieldPowerLimit, fieldPCIeMaxGen,
		fieldPCIeMaxWidth, fieldFBTotal,
	}
	for _, f := range byID {
		if f.better != 0 {
			list = append(list, f.better)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}()

// maxFields is at least the number of fields in byID.
const maxFields = 64

// number returns a raw value as a number; a mask without idle, as the field's quantity has it.
func (f *field) number(v *rawValue) (float64, bool) {
	x, ok := v.number()
	if ok && f.quantity == gpuquantity.Throttle {
		x = devicesamples.ThrottleMask(uint64(v.i))
	}
	return x, ok
}

// convert returns the value in base units.
func (f *field) convert(v float64) float64 { return v * f.Factor() }

// mebi converts DCGM's MB.
const mebi = 1 << 20

// maxEntities is how many entities go-dcgm and older host engines accept in a group.
const maxEntities = 64

// intersect keeps the wanted fields that are supported; an empty list of supported ones means that
// they are unknown.
func intersect(wanted, supported []uint16) []uint16 {
	if len(supported) == 0 {
		return wanted
	}
	return without(wanted, func(id uint16) bool { return !slices.Contains(supported, id) && !newInDCGM46(id) })
}

// basic keeps the fields that every device with profiling has; the rest is tried first and dropped
// if refused.
func basic(fields []uint16) []uint16 {
	return without(fields, func(id uint16) bool { return byID[id].Extra })
}

func without(fields []uint16, drop func(uint16) bool) []uint16 {
	return slices.DeleteFunc(slices.Clone(fields), drop)
}

// atLevel keeps the fields that a kind of entity has: a GPU instance has no PCIe and NVLink, a
// compute instance no separate memory interface either.
func atLevel(kind entityKind, fields []uint16) []uint16 {
	var level gpuquantity.Level
	switch kind {
	case entityGPUInstance:
		level = gpuquantity.GPUInstance
	case entityComputeInstance:
		level = gpuquantity.ComputeInstance
	default:
		return fields
	}
	return without(fields, func(id uint16) bool { return byID[id].Levels&level == 0 })
}
