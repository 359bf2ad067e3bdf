// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"bytes"
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

const (
	// readLimit is the number of values that one read may bring: 112 MiB.
	readLimit = 1 << 20
	// keptCapacity is the number of values for which a client keeps its memory between two reads.
	keptCapacity = 1 << 14
	// maxText is the length of a text value.
	maxText = 256
)

// reads are the reads in progress, by the number that the library passes back to collect. A Go
// pointer must not be passed through C.
var reads struct {
	mu   sync.Mutex
	next uintptr
	all  map[uintptr]*collection
}

// collection collects the values of one call.
type collection struct {
	values []rawValue
	full   bool // there are more than readLimit
}

// collect is the callback that the library calls with the values of one field of one entity. It
// stops the enumeration by a result other than 0. A process has one of them, because callbacks are
// never freed.
var collect = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(kind int32, id uint32, values *fieldValue, n int32, data uintptr) uintptr {
		reads.mu.Lock()
		r := reads.all[data]
		reads.mu.Unlock()
		if r == nil || values == nil {
			return 1
		}
		for i := range max(int(n), 0) {
			if len(r.values) >= readLimit {
				r.full = true
				return 1
			}
			v := (*fieldValue)(unsafe.Add(unsafe.Pointer(values), uintptr(i)*unsafe.Sizeof(*values)))
			r.values = append(r.values, v.raw(entity{entityKind(kind), uint(id)}))
		}
		return 0
	})
})

// raw returns the used part of a value, which has 4,120 bytes. Only the bytes of its type are read.
func (v *fieldValue) raw(e entity) rawValue {
	x := rawValue{ts: v.ts, entity: e, status: int(v.status), field: v.field, typ: uint8(v.typ)}
	switch x.typ {
	case typeInt:
		x.i = *(*int64)(unsafe.Pointer(&v.value))
	case typeDouble:
		x.f = *(*float64)(unsafe.Pointer(&v.value))
	case typeString:
		text, _, _ := bytes.Cut(v.value[:maxText], []byte{0})
		x.s = string(text)
	case typeBinary:
		if x.field == fieldMIGAttributes {
			x.parts = v.instanceParts()
			break
		}
		p := (*process)(unsafe.Pointer(&v.value))
		x.i, x.more = int64(p.pid), int64(p.memory)
	}
	return x
}

// instanceParts returns the attributes of a board's instances.
func (v *fieldValue) instanceParts() (parts []instancePart) {
	list := (*[len(v.value) / int(unsafe.Sizeof(migAttributes{}))]migAttributes)(unsafe.Pointer(&v.value))
	for i := range min(int(list[0].count), len(list)-1) {
		a := &list[i+1]
		parts = append(parts, instancePart{a.gpuInstance, a.computeInstance, a.multiprocessors})
	}
	return parts
}

// collected calls the library with a callback and a number, and fn with the collected values.
func (c *client) collected(call string, read func(fn, data uintptr) int32, fn func(*rawValue)) error {
	r := &collection{values: c.values[:0]}
	reads.mu.Lock()
	if reads.all == nil {
		reads.all = map[uintptr]*collection{}
	}
	reads.next++
	id := reads.next
	reads.all[id] = r
	reads.mu.Unlock()
	code := read(collect(), id)
	reads.mu.Lock()
	delete(reads.all, id)
	reads.mu.Unlock()
	c.values = nil
	if cap(r.values) <= keptCapacity {
		c.values = r.values
	}
	if err := c.check(call, code); err != nil {
		return err
	}
	if r.full {
		return fmt.Errorf("%s: %w", call, errTooMany)
	}
	for i := range r.values {
		fn(&r.values[i])
	}
	return nil
}

func (c *client) valuesSince(group, fieldGroup uintptr, mark int64, fn func(*rawValue)) (next int64, err error) {
	next = mark
	err = c.collected("dcgmGetValuesSince_v2", func(callback, data uintptr) int32 {
		return c.ValuesSince(c.handle, group, fieldGroup, mark, &next, callback, data)
	}, fn)
	if err != nil {
		return mark, err
	}
	return next, nil
}

func (c *client) latest(group, fieldGroup uintptr, fn func(*rawValue)) error {
	return c.collected("dcgmGetLatestValues_v2", func(callback, data uintptr) int32 {
		return c.LatestValues(c.handle, group, fieldGroup, callback, data)
	}, fn)
}
