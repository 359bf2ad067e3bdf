// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package dcgmsource

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

// process is the connection of this process. It is a package variable because the library's connection is: go-dcgm has
// one handle for all callers, and a second Init with another address silently gets the first connection.
var process = newConnection(library{})

// library is the real client library.
type library struct{}

func (library) init(target string) error {
	var err error
	switch path, unix := strings.CutPrefix(target, "unix://"); {
	case target == Embedded:
		_, err = dcgm.Init(dcgm.Embedded)
	case unix:
		_, err = dcgm.Init(dcgm.Standalone, path, "1")
	default:
		_, err = dcgm.Init(dcgm.Standalone, target, "0")
	}
	if err != nil && strings.HasSuffix(err.Error(), "not found") { // the library; it has no error value of its own
		err = fmt.Errorf("%w (install datacenter-gpu-manager-4-core)", err)
	}
	return err
}

func (library) shutdown() error { return dcgm.Shutdown() }

func (library) gpus() ([]uint, error) { return dcgm.GetEntityGroupEntities(dcgm.FE_GPU) }

func (library) instances() ([]instance, error) {
	h, err := dcgm.GetGPUInstanceHierarchy()
	if err != nil {
		return nil, err
	}
	list := make([]instance, 0, h.Count)
	for i := range min(h.Count, uint(len(h.EntityList))) {
		x := &h.EntityList[i]
		list = append(list, instance{
			entity:      entity{entityKind(x.Entity.EntityGroupId), x.Entity.EntityId},
			parent:      entity{entityKind(x.Parent.EntityGroupId), x.Parent.EntityId},
			gpuUUID:     x.Info.GpuUuid,
			gpuInstance: x.Info.NvmlInstanceId,
			compute:     x.Info.NvmlComputeInstanceId,
			slices:      x.Info.NvmlProfileSlices,
		})
	}
	return list, nil
}

func (library) status(gpu uint) int { return int(dcgm.GetGPUStatus(gpu)) }

func (library) fieldType(id uint16) byte {
	meta, err := dcgm.FieldGetByID(dcgm.Short(id))
	if err != nil {
		return 0
	}
	return meta.FieldType
}

func (library) profilingFields(gpu uint) ([]uint16, error) {
	groups, err := dcgm.GetSupportedMetricGroups(gpu)
	if err != nil {
		return nil, err
	}
	var fields []uint16
	for _, g := range groups {
		for _, id := range g.FieldIds {
			fields = append(fields, uint16(id))
		}
	}
	return fields, nil
}

func (library) createGroup(name string, entities []entity) (uintptr, error) {
	if len(entities) == 0 {
		return 0, errors.New("group without entities")
	}
	g, err := dcgm.CreateGroup(name)
	if err != nil {
		return 0, err
	}
	for _, e := range entities {
		if err := dcgm.AddEntityToGroup(g, dcgm.Field_Entity_Group(e.kind), e.id); err != nil {
			_ = dcgm.DestroyGroup(g)
			return 0, err
		}
	}
	return g.GetHandle(), nil
}

func groupHandle(h uintptr) dcgm.GroupHandle {
	var g dcgm.GroupHandle
	g.SetHandle(h)
	return g
}

func fieldHandle(h uintptr) dcgm.FieldHandle {
	var f dcgm.FieldHandle
	f.SetHandle(h)
	return f
}

func (library) destroyGroup(group uintptr) error { return dcgm.DestroyGroup(groupHandle(group)) }

func (library) createFieldGroup(name string, fields []uint16) (uintptr, error) {
	f, err := dcgm.FieldGroupCreate(name, shorts(fields))
	return f.GetHandle(), err
}

func (library) destroyFieldGroup(fieldGroup uintptr) error {
	return dcgm.FieldGroupDestroy(fieldHandle(fieldGroup))
}

func (library) watch(group, fieldGroup uintptr, everyMicros int64, keepSeconds float64) error {
	return dcgm.WatchFieldsWithGroupEx(fieldHandle(fieldGroup), groupHandle(group), everyMicros, keepSeconds, 0)
}

func (library) unwatch(group, fieldGroup uintptr) error {
	return dcgm.UnwatchFields(fieldHandle(fieldGroup), groupHandle(group))
}

func (library) valuesSince(group, fieldGroup uintptr, mark int64, fn func(*rawValue)) (int64, error) {
	values, next, err := dcgm.GetValuesSince(groupHandle(group), fieldHandle(fieldGroup), time.UnixMicro(mark))
	if err != nil {
		return mark, err
	}
	pass(values, fn)
	return next.UnixMicro(), nil
}

func (library) latest(entities []entity, fields []uint16, fn func(*rawValue)) error {
	pairs := make([]dcgm.GroupEntityPair, len(entities))
	for i, e := range entities {
		pairs[i] = dcgm.GroupEntityPair{EntityGroupId: dcgm.Field_Entity_Group(e.kind), EntityId: e.id}
	}
	// No flags: the live-data flag crashes the host engine on a profiling field and fails the request on field 230.
	values, err := dcgm.EntitiesGetLatestValues(pairs, shorts(fields), 0)
	if err != nil {
		return err
	}
	pass(values, fn)
	return nil
}

// pass takes the scalars out of the library's values of 4 KiB each, of which none is kept.
func pass(values []dcgm.FieldValue_v2, fn func(*rawValue)) {
	var raw rawValue
	for i := range values {
		v := &values[i]
		raw = rawValue{
			entity: entity{entityKind(v.EntityGroupId), v.EntityID},
			field:  uint16(v.FieldID), typ: byte(v.FieldType), status: v.Status, ts: v.TS,
		}
		switch raw.typ {
		case typeInt:
			raw.i = int64Of(&v.Value)
		case typeDouble:
			raw.f = float64Of(&v.Value)
		case typeString:
			raw.s = stringOf(&v.Value)
		}
		fn(&raw)
	}
}

func shorts(ids []uint16) []dcgm.Short {
	list := make([]dcgm.Short, len(ids))
	for i, id := range ids {
		list[i] = dcgm.Short(id)
	}
	return list
}
