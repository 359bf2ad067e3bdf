// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

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

// maxText is how much of a text goes to the tool.
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

// number makes a span id the payload: the unsigned number whose hexadecimal form it is.
func (e *event) number(id [8]byte) {
	e.payloadType, e.payload = payloadUint64, binary.BigEndian.Uint64(id[:])
}

func (e *event) registered(s uintptr) { e.messageType, e.message = messageRegistered, s }

// start begins a text; more appends to it.
func (e *event) start() []byte { return e.text[:0] }

// ascii makes the text the message. What is too long is cut; append then has moved it elsewhere.
func (e *event) ascii(b []byte) {
	n := copy(e.text[:maxText], b)
	e.text[n] = 0
	e.messageType, e.message = messageASCII, dl.Address(&e.text[0])
}
