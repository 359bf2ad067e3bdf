// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Entries of NVTX's module table CORE2.
const (
	domainMarkEx       = 1
	domainRangeStartEx = 2
	domainRangeEnd     = 3
	domainNameCategory = 8
	domainRegisterStr  = 10
	domainCreate       = 12
)

// domain is a namespace of ranges, shown as one row by the tool.
type domain struct {
	client *client // whose slots are read at each call: a tool may change them at any time
	handle uintptr

	mu         sync.Mutex
	categories map[string]uint32
}

// maxCategories bounds the categories of a domain; further names get none.
const maxCategories = 1024

// newDomain returns nil without a tool, or for one that takes no domains.
func newDomain(c *client, name string) *domain {
	create := c.fn(domainCreate)
	if create == 0 || c.fn(domainRangeStartEx) == 0 || c.fn(domainRangeEnd) == 0 {
		return nil
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Text(0, cut(name))
	return &domain{client: c, handle: f.CallPointer(create, 1), categories: map[string]uint32{}}
}

// cut truncates a text to what is passed to the tool.
func cut(s string) string { return s[:min(len(s), maxText)] }

// register returns the tool's handle of a text, which is cheaper to pass than the text; 0 if the
// tool supports none. Tools keep registered strings forever: few are registered, once each.
func (d *domain) register(text string) uintptr {
	register := d.client.fn(domainRegisterStr)
	if register == 0 {
		return 0
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = d.handle
	f.Text(1, cut(text))
	return f.CallPointer(register, 2)
}

// category returns the number of a category of this domain, giving it one at the first call; 0, no
// category, for the empty name and beyond 1,024 categories.
func (d *domain) category(name string) uint32 {
	if name == "" {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id, ok := d.categories[name]
	if ok || len(d.categories) == maxCategories {
		return id
	}
	id = uint32(len(d.categories) + 1)
	d.categories[name] = id
	if nameCategory := d.client.fn(domainNameCategory); nameCategory != 0 {
		f := dl.NewFrame()
		defer f.Free()
		f.Args[0], f.Args[1] = d.handle, uintptr(id)
		f.Text(2, cut(name))
		f.Call(nameCategory, 3)
	}
	return id
}

// call passes an event to one of the tool's functions, and releases the event's memory.
func (d *domain) call(entry int, e *event) (id uint64) {
	if fn := d.client.fn(entry); fn != 0 {
		f := dl.NewFrame()
		defer f.Free()
		f.Args[0] = d.handle
		f.Pointer(1, dl.Ref(&e.attributes))
		id = uint64(f.CallPointer(fn, 2))
	}
	events.Put(e)
	return id
}

// attributes is nvtxEventAttributes_t of version 3, 48 bytes:
//
//	0 version u16 · 2 size u16 · 4 category u32 · 8 colour type i32 · 12 colour u32 · 16 payload type i32 · 20 –
//	24 payload u64 · 32 message type i32 · 36 – · 40 message pointer
type attributes struct {
	version, size uint16
	category      uint32
	_             [2]uint32 // colour
	payloadType   int32
	_             int32
	payload       uint64
	messageType   int32
	_             int32
	message       uintptr
}

const (
	payloadUint64     = 1
	messageASCII      = 1
	messageRegistered = 3
)

// maxText is the maximum length of a text passed to the tool.
const maxText = 255

// event is a call's memory on the heap, where it does not move: attributes and text.
type event struct {
	attributes
	text [maxText + 1]byte
}

var events = sync.Pool{New: func() any {
	e := new(event)
	e.version, e.size = 3, uint16(unsafe.Sizeof(e.attributes))
	return e
}}

// newEvent takes an event without payload and message from the pool.
func newEvent(category uint32) *event {
	e := events.Get().(*event)
	e.category, e.payloadType, e.payload = category, 0, 0
	return e
}

// number makes a span ID the payload: the unsigned number with that hexadecimal form.
func (e *event) number(id [8]byte) {
	e.payloadType, e.payload = payloadUint64, binary.BigEndian.Uint64(id[:])
}

// start starts a text; more appends to it.
func (e *event) start() []byte { return e.text[:0] }

// ascii makes the text the message. Long text is truncated; append then has moved it elsewhere.
func (e *event) ascii(b []byte) {
	n := copy(e.text[:maxText], b)
	e.text[n] = 0
	e.messageType, e.message = messageASCII, dl.Address(&e.text[0])
}
