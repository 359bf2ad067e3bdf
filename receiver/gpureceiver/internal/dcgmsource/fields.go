// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"slices"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// field is what a DCGM field means here.
type field struct {
	id       uint16
	quantity gpudata.Quantity
	scale    float64
	// rank orders the fields of one quantity: once a device has given a value of a lower rank, higher ones are ignored.
	rank uint8
	form form
	// positive: the host engine stores 0 where the driver answers that it has no such value.
	positive bool
	index    int // in deviceState.last
}

// form is how a value becomes one of its quantity.
type form uint8

const (
	formPlain   form = iota
	formRate         // a mean rate over the time since the sample before, that is integrated
	formCounter      // a counter that another field can stand in for, hence counted from 0
)

// Units of DCGM in base units.
const (
	percent = 0.01
	milli   = 1e-3
	mega    = 1e6
	mebi    = 1 << 20
)

// fast fields are watched at the sampling interval and read as histories. Each costs a round trip for each board and
// read, so what changes slowly is not among them.
var fast = []field{
	{id: 100, quantity: gpudata.ClockSM, scale: mega},
	{id: 112, quantity: gpudata.Throttle, scale: 1},
	{id: 155, quantity: gpudata.Power, scale: 1, rank: 1}, // a mean over up to 1 s on newer chips
	{id: 156, quantity: gpudata.Energy, scale: milli},
	// NVML answers an unsupported instantaneous power with a call that succeeds and a field that says so; DCGM looks at
	// the call only and stores 0 W. A board that is on draws more.
	{id: 157, quantity: gpudata.Power, scale: 1, positive: true},
	{id: 203, quantity: gpudata.Utilization, scale: percent},
	{id: 252, quantity: gpudata.MemoryUsed, scale: mebi},
	{id: 1611, quantity: gpudata.Energy, scale: 1, rank: 1}, // DCGM 4.6
}

// rivals are fast fields that stand in for another one, and that one. Where every board gives the better one, the
// stand-in is not watched.
var rivals = map[uint16]uint16{155: 157, 1611: 156}

// medium fields change within seconds. With them goes the XID, whose history is read when there is a new one.
var medium = []field{
	{id: 101, quantity: gpudata.ClockMemory, scale: mega},
	{id: 150, quantity: gpudata.Temperature, scale: 1},
}

// slow fields change rarely. Their newest values are read, all in one round trip.
var slow = []field{
	{id: 102, quantity: gpudata.ClockVideo, scale: mega},
	{id: 202, quantity: gpudata.PCIeReplays, scale: 1},
	{id: 206, quantity: gpudata.EncoderUtilization, scale: percent},
	{id: 207, quantity: gpudata.DecoderUtilization, scale: percent},
	{id: 250, quantity: gpudata.MemoryLimit, scale: mebi},
	{id: 253, quantity: gpudata.MemoryReserved, scale: mebi},
	{id: 310, quantity: gpudata.ECCCorrected, scale: 1},
	{id: 311, quantity: gpudata.ECCUncorrected, scale: 1},
	{id: 390, quantity: gpudata.RetiredCorrected, scale: 1},
	{id: 391, quantity: gpudata.RetiredUncorrected, scale: 1},
	{id: 392, quantity: gpudata.RetirePending, scale: 1},
	{id: 393, quantity: gpudata.RemappedUncorrected, scale: 1},
	{id: 394, quantity: gpudata.RemappedCorrected, scale: 1},
	{id: 395, quantity: gpudata.RemapFailed, scale: 1},
	{id: 396, quantity: gpudata.RemapPending, scale: 1},
	{id: 409, quantity: gpudata.NVLinkCRC, scale: 1},
}

// profiling fields need the profiling module or a device with GPM; one device that has neither fails the watch of all,
// so they are watched apart and by class of device.
var profiling = []field{
	{id: graphicsEngine, quantity: gpudata.Utilization, scale: 1, rank: 1},
	{id: 1002, quantity: gpudata.SMUtilization, scale: 1},
	{id: 1003, quantity: gpudata.SMOccupancy, scale: 1},
	{id: 1004, quantity: gpudata.TensorUtilization, scale: 1},
	{id: 1005, quantity: gpudata.DRAMUtilization, scale: 1},
	{id: 1006, quantity: gpudata.PipeFP64, scale: 1},
	{id: 1007, quantity: gpudata.PipeFP32, scale: 1},
	{id: 1008, quantity: gpudata.PipeFP16, scale: 1},
	{id: 1009, quantity: gpudata.PCIeTransmit, scale: 1, rank: 1, form: formRate},
	{id: 1010, quantity: gpudata.PCIeReceive, scale: 1, rank: 1, form: formRate},
	{id: 1011, quantity: gpudata.NVLinkTransmit, scale: 1, form: formRate},
	{id: 1012, quantity: gpudata.NVLinkReceive, scale: 1, form: formRate},
	{id: 1091, quantity: gpudata.PCIeTransmit, scale: 1, form: formCounter}, // DCGM 4.6 with GPM: a counter of the device
	{id: 1092, quantity: gpudata.PCIeReceive, scale: 1, form: formCounter},
}

// basicProfiling is the part that every device with profiling has; the rest is tried first and left out when refused.
const basicProfiling = 1012

// newInDCGM46 are refused by an older host engine, and with them the whole field group.
func newInDCGM46(id uint16) bool { return id == 1611 || id >= 1084 && id <= 1096 }

const (
	// fieldXID carries the number of the last XID. Its samples are events.
	fieldXID = 230
	// fieldProcesses has a sample for each process that computes on a board, all of one look with one time. DCGM's
	// header names it internal; a library that does not know it, or gives no process there, costs nothing.
	fieldProcesses = 221
)

// Fields that say what a device is.
const (
	fieldDriver       = 1
	fieldModel        = 50
	fieldNVMLIndex    = 52
	fieldUUID         = 54
	fieldPCI          = 57
	fieldPowerLimit   = 164
	fieldPCIeMaxGen   = 235
	fieldPCIeMaxWidth = 236
	fieldFBTotal      = 250
)

var describing = []uint16{
	fieldDriver, fieldModel, fieldNVMLIndex, fieldUUID, fieldPCI, fieldPowerLimit, fieldPCIeMaxGen, fieldPCIeMaxWidth,
	fieldFBTotal, 156, 157, 203, // of rivals
}

// isPipe says whether a profiling field is of a single pipe, of which only a metric that is off by default speaks.
func isPipe(id uint16) bool { return id >= 1006 && id <= 1008 }

// graphicsEngine stands in for the utilisation 203, which instances and boards that are cut into them do not have.
const graphicsEngine = 1001

// byID is what a field means.
var byID = func() map[uint16]*field {
	m := map[uint16]*field{}
	for _, list := range [][]field{fast, medium, slow, profiling} {
		for i := range list {
			list[i].index = len(m)
			m[list[i].id] = &list[i]
		}
	}
	return m
}()

// maxFields is at least the number of fields in byID.
const maxFields = 48

// convert is the value in base units.
func (f *field) convert(v float64) float64 {
	if f.quantity == gpudata.Throttle {
		return float64(uint64(v) & uint64(gpusamplesextension.ThrottleReasons))
	}
	return v * f.scale
}

func ids(list []field) []uint16 {
	out := make([]uint16, len(list))
	for i := range list {
		out[i] = list[i].id
	}
	return out
}

// maxEntities is how many entities go-dcgm and older host engines take in a group.
const maxEntities = 64

// intersect keeps the wanted fields that are supported; an empty list of supported ones means that it is not known.
func intersect(wanted, supported []uint16) []uint16 {
	if len(supported) == 0 {
		return wanted
	}
	return without(wanted, func(id uint16) bool { return !slices.Contains(supported, id) && !newInDCGM46(id) })
}

func basic(fields []uint16) []uint16 {
	return without(fields, func(id uint16) bool { return id > basicProfiling })
}

func without(fields []uint16, drop func(uint16) bool) []uint16 {
	return slices.DeleteFunc(slices.Clone(fields), drop)
}

// atLevel keeps the profiling fields that a kind of entity has: a GPU instance has no PCIe and NVLink, a compute
// instance no memory interface of its own either.
func atLevel(kind entityKind, fields []uint16) []uint16 {
	const first, dram, last = 1001, 1005, 1008
	switch kind {
	case entityGPUInstance:
		return without(fields, func(id uint16) bool { return id < first || id > last })
	case entityComputeInstance:
		return without(fields, func(id uint16) bool { return id < first || id > last || id == dram })
	}
	return fields
}
