// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx

import (
	"sync"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Domain is a namespace of ranges, shown as one row by the tool. A nil Domain does nothing. Its methods may be called
// from any goroutine.
type Domain struct {
	client *client // whose slots are read at each call: a tool may change them at any time
	handle uintptr

	mu         sync.Mutex
	categories map[string]uint32
}

// maxCategories bounds the categories of a domain; further names count as none.
const maxCategories = 1024

// newDomain returns nil without a tool, or for one that takes no domains.
func newDomain(c *client, name string) *Domain {
	create := c.fn(domainCreate)
	if create == 0 || c.fn(domainRangeStartEx) == 0 || c.fn(domainRangeEnd) == 0 {
		return nil
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Text(0, cut(name))
	return &Domain{client: c, handle: f.CallPointer(create, 1), categories: map[string]uint32{}}
}

// cut leaves as much of a text as goes to the tool.
func cut(s string) string { return s[:min(len(s), maxText)] }

// String is a text that the tool knows under a number, which is cheaper than the text.
type String struct {
	handle uintptr
	text   string // for tools that take no registrations
}

// Register makes a text known. Tools keep registered strings for ever: do so for few of them, once each.
func (d *Domain) Register(text string) String {
	if d == nil {
		return String{text: text}
	}
	register := d.client.fn(domainRegisterStr)
	if register == 0 {
		return String{text: text}
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = d.handle
	f.Text(1, cut(text))
	return String{handle: f.CallPointer(register, 2), text: text}
}

// Category returns the number of a category of this domain, giving it one at the first call; 0, no category, for the
// empty name and beyond 1,024 categories.
func (d *Domain) Category(name string) uint32 {
	if d == nil || name == "" {
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

// Range is one annotation: its text, category and colour, and a number beside it when Payload is not nil.
type Range struct {
	Text     String  // from [Domain.Register]
	Category uint32  // from [Domain.Category]; 0: none
	Color    Color   // 0: the viewer's choice
	Payload  *uint64 // nil: none
}

func (r *Range) event() *event {
	e := newEvent(r.Category)
	e.paint(r.Color)
	if r.Payload != nil {
		e.payloadType, e.payload = payloadUint64, *r.Payload
	}
	if r.Text.handle != 0 {
		e.registered(r.Text.handle)
	} else {
		e.ascii(append(e.start(), r.Text.text...))
	}
	return e
}

// Start begins a range that may end on another thread; pass the result to End.
func (d *Domain) Start(r Range) uint64 {
	if d == nil {
		return 0
	}
	e := r.event()
	id := d.startEvent(e)
	e.free()
	return id
}

func (d *Domain) startEvent(e *event) uint64 { return uint64(d.callEvent(domainRangeStartEx, e)) }

func (d *Domain) callEvent(entry int, e *event) uintptr {
	fn := d.client.fn(entry)
	if fn == 0 {
		return 0
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = d.handle
	f.Pointer(1, dl.Ref(&e.attributes))
	return f.CallPointer(fn, 2)
}

// End ends a range of Start.
func (d *Domain) End(id uint64) {
	if d == nil || id == 0 {
		return
	}
	if fn := d.client.fn(domainRangeEnd); fn != 0 {
		fn.Call(d.handle, uintptr(id))
	}
}

// Mark sets a point in time.
func (d *Domain) Mark(r Range) {
	if d == nil {
		return
	}
	e := r.event()
	d.callEvent(domainMarkEx, e)
	e.free()
}

// Push begins a range that nests on the calling OS thread, which must stay locked until the Pop.
func (d *Domain) Push(r Range) {
	if d == nil {
		return
	}
	e := r.event()
	d.callEvent(domainRangePushEx, e)
	e.free()
}

// Pop ends the innermost range of Push on the calling OS thread.
func (d *Domain) Pop() {
	if d == nil {
		return
	}
	if fn := d.client.fn(domainRangePop); fn != 0 {
		fn.Call(d.handle)
	}
}
