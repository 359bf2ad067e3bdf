// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/instrument"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// inventory is the list of devices. key changes with it.
type inventory struct {
	gpus      []uint
	instances []instance
	key       string
}

// list reads the inventory. While the driver is detached it is empty, without an error.
func (s *session) list() (inventory, error) {
	gpus, err := s.api.gpus()
	if err != nil {
		return inventory{}, fmt.Errorf("cannot list GPUs: %w", err)
	}
	slices.Sort(gpus)
	inv := inventory{gpus: gpus}
	if len(gpus) > 0 {
		// A missing hierarchy (an old driver, no MIG) is not an error of the connection: then there
		// are physical GPUs only.
		inv.instances, _ = s.api.instances()
	}
	inv.key = fmt.Sprint(inv.gpus, inv.instances)
	return inv, nil
}

// facts are the describing fields of one entity.
type facts struct {
	text   map[uint16]string
	number map[uint16]float64
	parts  []instancePart
}

// discover creates the devices from the inventory.
func (s *session) discover() error {
	inv, err := s.list()
	if err != nil {
		return err
	}
	s.inventory = inv.key
	s.devices, s.parts, s.nameless = nil, nil, nil
	s.byPart = map[entity][]int{}
	s.started = s.now().UnixMicro() // unless the host engine reports it
	if len(inv.gpus) > 0 {
		known, err := s.describe(inv)
		if err != nil {
			return err
		}
		for _, gpu := range inv.gpus {
			e := entity{entityGPU, gpu}
			d, ok := board(gpu, known[e])
			if !ok {
				s.nameless = append(s.nameless, gpu) // without a UUID it cannot be identified
				continue
			}
			s.add(d, part{gpu: gpu, entities: []entity{e}, gives: slices.Collect(maps.Keys(known[e].number))})
		}
		s.addInstances(inv, known)
		s.chooseRivals(known)
	}
	for i := range s.devices {
		s.devices[i].Source = "dcgm"
		s.devices[i].Interval = s.set.Sampling
	}
	s.adopt()
	s.kept.xids.begin(s.started)
	return nil
}

// chooseRivals drops the fast fields for which every device has a better one.
func (s *session) chooseRivals(known map[entity]*facts) {
	s.without = nil
	for standIn, f := range byID {
		better := f.better
		if better == 0 || f.Pace != gpuquantity.Fast {
			continue
		}
		if !slices.ContainsFunc(s.watched(entityGPU), func(e entity) bool { return !(known[e].number[better] > 0) }) {
			s.without = append(s.without, standIn)
		}
	}
}

func (s *session) add(d devicesamples.Device, p part) {
	for _, e := range p.entities {
		s.byPart[e] = append(s.byPart[e], len(s.devices))
	}
	s.devices, s.parts = append(s.devices, d), append(s.parts, p)
}

// describe reads the describing fields of all entities, by separate watches that are removed
// afterwards.
func (s *session) describe(inv inventory) (map[entity]*facts, error) {
	known := map[entity]*facts{}
	var boards, instances []entity
	for _, gpu := range inv.gpus {
		boards = append(boards, entity{entityGPU, gpu})
	}
	for _, x := range inv.instances {
		if x.entity.kind == entityComputeInstance {
			instances = append(instances, x.entity)
		}
	}
	for _, e := range append(boards, instances...) {
		known[e] = &facts{text: map[uint16]string{}, number: map[uint16]float64{}}
	}
	if err := s.describeAll(boards, describing, known); err != nil {
		return nil, err
	}
	// An instance without a description is identified by its position.
	_ = s.describeAll(instances, []uint16{fieldUUID, fieldFBTotal}, known)
	if len(instances) > 0 {
		_ = s.describeAll(boards, []uint16{fieldMIGAttributes}, known)
	}
	return known, nil
}

// describeEvery is the interval of the watches that describe devices. The host engine reads a whole
// GPU at once when its first watch starts, but an instance only an interval after it was last read;
// until then it returns the values of an earlier instance with the same number.
const describeEvery = time.Millisecond

// describeBoardsEvery is the same for GPUs. The driver's version belongs to the whole engine, which
// keeps its watch until the connection ends, even if all are removed; at describeEvery it would
// wake up a thousand times a second.
const describeBoardsEvery = time.Minute

// describeAll reads fields of entities. For instances, and of their boards their attributes, it
// drops values read before the physical GPUs' values: they may belong to other instances.
func (s *session) describeAll(entities []entity, fields []uint16, known map[entity]*facts) error {
	since, every := int64(0), describeBoardsEvery
	if len(entities) > 0 && (entities[0].kind != entityGPU || fields[0] == fieldMIGAttributes) {
		since, every = s.started, describeEvery
	}
	for chunk := range slices.Chunk(entities, maxEntities) {
		w, err := s.newWatch(latest, "facts", chunk, fields, every)
		if err != nil || w == nil {
			return err
		}
		newest := int64(0)
		err = s.api.latest(w.group, w.fields, func(v *rawValue) {
			newest = max(newest, v.ts)
			f := known[v.entity]
			if f == nil || v.status != statusOK || v.ts < since {
				return
			}
			if v.field == fieldMIGAttributes {
				f.parts = v.parts
			} else if text, ok := v.text(); ok {
				f.text[v.field] = text
			} else if n, ok := v.number(); ok {
				f.number[v.field] = n
			}
		})
		s.unwatchLast()
		if err != nil {
			return fmt.Errorf("cannot read the devices' attributes: %w", err)
		}
		if newest > s.started || since == 0 && newest > 0 {
			s.started = newest // just measured, by the host engine's clock
		}
	}
	return nil
}

func board(gpu uint, f *facts) (devicesamples.Device, bool) {
	uuid := f.text[fieldUUID]
	if uuid == "" {
		return devicesamples.Device{}, false
	}
	ordinal := int(gpu)
	if n, ok := f.number[fieldNVMLIndex]; ok {
		ordinal = int(n)
	}
	d := devicesamples.Device{
		ID: uuid, Name: fmt.Sprintf("gpu%d", ordinal), Model: f.text[fieldModel], Vendor: "NVIDIA",
		DriverVersion: f.text[fieldDriver], PCIBDF: f.text[fieldPCI], Ordinal: ordinal,
		Limits: devicesamples.Limits{
			Memory: int64(f.number[fieldFBTotal]) * mebi,
			Power:  f.number[fieldPowerLimit],
		},
	}
	if minor, ok := f.number[fieldMinor]; ok {
		d.DeviceFile = fmt.Sprintf("nvidia%d", int(minor))
	}
	if !(f.number[fieldPowerInstant] > 0) {
		d.PowerWindow = instrument.MeanWindow
	}
	if gen, lanes := f.number[fieldPCIeMaxGen], f.number[fieldPCIeMaxWidth]; gen > 0 && lanes > 0 {
		d.Limits.PCIeBandwidth = peaks.PCIeRate(int(gen), int(lanes))
	}
	return d, true
}

// addInstances adds a device for each compute instance: that is what a process sees as a MIG
// device. Values of its GPU instance apply to it too.
func (s *session) addInstances(inv inventory, known map[entity]*facts) {
	holder := map[entity]instance{}
	for _, x := range inv.instances {
		if x.entity.kind == entityGPUInstance {
			holder[x.entity] = x
		}
	}
	for _, x := range inv.instances {
		gi, ok := holder[x.parent]
		if x.entity.kind != entityComputeInstance || !ok || gi.parent.kind != entityGPU {
			continue
		}
		parent := s.byPart[gi.parent]
		if len(parent) == 0 {
			continue // a board that cannot be identified
		}
		b := &s.devices[parent[0]]
		f := known[x.entity]
		id := f.text[fieldUUID]
		if !strings.HasPrefix(id, "MIG-") {
			// Drivers before 470 have no UUIDs of instances; this is their notation.
			id = fmt.Sprintf("MIG-%s/%d/%d", b.ID, gi.gpuInstance, x.compute)
		}
		memory := int64(f.number[fieldFBTotal]) * mebi
		file := b.DeviceFile
		if file != "" {
			file += fmt.Sprintf("/gi%d", gi.gpuInstance)
		}
		s.add(devicesamples.Device{
			ID: id, Parent: b.ID, Name: fmt.Sprintf("%s:%d/%d", b.Name, gi.gpuInstance, x.compute), Model: b.Model,
			Vendor: b.Vendor, DriverVersion: b.DriverVersion, PCIBDF: b.PCIBDF, Ordinal: -1, DeviceFile: file,
			MIG:    share(b, known[gi.parent], gi, x, memory),
			Limits: devicesamples.Limits{Memory: memory},
		}, part{gpu: gi.parent.id, entities: []entity{x.parent, x.entity}})
	}
}

// share returns what a compute instance has of its board.
func share(b *devicesamples.Device, board *facts, gi, x instance, memory int64) (m devicesamples.MIG) {
	m.Profile = gpudata.MIGProfile(gi.slices, x.slices, memory)
	m.Slices, m.AllSlices = gpudata.MemorySlices(memory, b.Limits.Memory)
	for _, p := range board.parts {
		if uint(p.gpuInstance) == gi.gpuInstance && uint(p.computeInstance) == x.compute {
			m.SMs = int(p.multiprocessors)
		}
	}
	return m
}

// watched returns the physical GPUs, or the GPU instances, that are not lost, each once: a group
// rejects duplicates.
func (s *session) watched(kind entityKind) (list []entity) {
	for _, p := range s.parts {
		if e := p.entities[0]; e.kind == kind && !s.left[p.gpu] && !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	return list
}
