// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package dcgmsource

import (
	"errors"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
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
	switch {
	case err == nil:
		return bindValues()
	case strings.HasSuffix(err.Error(), "not found"): // the library; go-dcgm has no error value of its own
		return fmt.Errorf("DCGM's client library is missing: %w (install datacenter-gpu-manager-4-core): %w", err,
			gpudata.ErrUnavailable)
	}
	return fmt.Errorf("cannot reach DCGM at %q: %w", target, err)
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
	list := make([]dcgm.Short, len(fields))
	for i, id := range fields {
		list[i] = dcgm.Short(id)
	}
	f, err := dcgm.FieldGroupCreate(name, list)
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

// New returns the source.
func New(set Settings) gpudata.Source { return newSource(set, process) }
