// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import "encoding/binary"

// record is an event as the sorter keeps it. Layout, little-endian:
//
//	0  key         int64   what records are sorted by: start on the host's rows, start + skew on the device's
//	8  duration    int64   ns
//	16 correlation int64   of operators Event.Gradient
//	24 sequence    uint32  order in the file
//	28 name        uint32
//	32 track       uint32  host thread or device stream
//	36 detail      uint32  length of the detail that follows
//	40 kind        uint8
type record struct {
	key         int64
	duration    int64
	correlation int64
	seq         uint32
	name        uint32
	track       uint32
	kind        Kind
	detail      []byte // valid until the next record is read
}

const recordHeader = 41

// skew is how far the sweep keeps the host's rows ahead of the device's, so that a launch is known before its kernel
// even where the two clocks of a file disagree.
const skew = int64(20_000_000)

func recordKey(k Kind, start int64) int64 {
	if k.Device() {
		return start + skew
	}
	return start
}

func (r *record) start() int64 {
	if r.kind.Device() {
		return r.key - skew
	}
	return r.key
}

func (r *record) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(r.key))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.duration))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.correlation))
	b = binary.LittleEndian.AppendUint32(b, r.seq)
	b = binary.LittleEndian.AppendUint32(b, r.name)
	b = binary.LittleEndian.AppendUint32(b, r.track)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.detail)))
	b = append(b, byte(r.kind))
	return append(b, r.detail...)
}

// header reads all but the detail, and returns its length.
func (r *record) header(b []byte) int {
	_ = b[recordHeader-1]
	r.key = int64(binary.LittleEndian.Uint64(b))
	r.duration = int64(binary.LittleEndian.Uint64(b[8:]))
	r.correlation = int64(binary.LittleEndian.Uint64(b[16:]))
	r.seq = binary.LittleEndian.Uint32(b[24:])
	r.name = binary.LittleEndian.Uint32(b[28:])
	r.track = binary.LittleEndian.Uint32(b[32:])
	r.kind = Kind(b[40])
	return int(binary.LittleEndian.Uint32(b[36:]))
}

// less returns the order of the sweep: by time, then the longer range first (it encloses the other), then by kind,
// then, of frames, the number that the profiler gave it when it began, then as in the file.
func (r *record) less(o *record) bool {
	switch {
	case r.key != o.key:
		return r.key < o.key
	case r.kind.Device() != o.kind.Device():
		return !r.kind.Device()
	case r.duration != o.duration:
		return r.duration > o.duration
	case r.kind != o.kind:
		return r.kind < o.kind
	case r.kind == KindFrame && r.correlation != o.correlation:
		return r.correlation < o.correlation
	}
	return r.seq < o.seq
}
