// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import "slices"

// chunks cuts entities into groups: go-dcgm and older host engines take 64 entities in one.
func chunks(entities []entity) [][]entity {
	return slices.Collect(slices.Chunk(entities, maxEntities))
}

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

// unite removes entities that occur twice: a group refuses them.
func unite(entities []entity) []entity {
	var out []entity
	for _, e := range entities {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
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
