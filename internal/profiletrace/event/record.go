// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import "encoding/binary"

// Record is an event as the sorter keeps it. Layout, little-endian:
//
//	0  key         int64   what records are sorted by: start on the host's rows, start + skew on the device's
//	8  duration    int64   ns
//	16 correlation int64   of operators Event.Gradient
//	24 sequence    uint32  order in the file
//	28 name        uint32
//	32 track       uint32  host thread or device stream
//	36 detail      uint32  length of the detail that follows
//	40 kind        uint8
type Record struct {
	Key         int64
	Duration    int64
	Correlation int64
	Seq         uint32
	Name        uint32
	Track       uint32
	Kind        Kind
	Detail      []byte // valid until the next record is read
}

const recordHeader = 41

// Skew is how far the sweep keeps the host's rows ahead of the device's, so that a launch is known
// before its kernel even where the two clocks of a file disagree.
const Skew = int64(20_000_000)

func recordKey(k Kind, start int64) int64 {
	if k.Device() {
		return start + Skew
	}
	return start
}

// Start returns the start of the event, in ns since the file's base.
func (r *Record) Start() int64 {
	if r.Kind.Device() {
		return r.Key - Skew
	}
	return r.Key
}

func (r *Record) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Key))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Duration))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Correlation))
	b = binary.LittleEndian.AppendUint32(b, r.Seq)
	b = binary.LittleEndian.AppendUint32(b, r.Name)
	b = binary.LittleEndian.AppendUint32(b, r.Track)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Detail)))
	b = append(b, byte(r.Kind))
	return append(b, r.Detail...)
}

// header reads all but the detail, and returns its length.
func (r *Record) header(b []byte) int {
	_ = b[recordHeader-1]
	r.Key = int64(binary.LittleEndian.Uint64(b))
	r.Duration = int64(binary.LittleEndian.Uint64(b[8:]))
	r.Correlation = int64(binary.LittleEndian.Uint64(b[16:]))
	r.Seq = binary.LittleEndian.Uint32(b[24:])
	r.Name = binary.LittleEndian.Uint32(b[28:])
	r.Track = binary.LittleEndian.Uint32(b[32:])
	r.Kind = Kind(b[40])
	return int(binary.LittleEndian.Uint32(b[36:]))
}

// Less returns the order of the sweep: by time, then the longer range first (it encloses the
// other), then by kind, then, of frames, the number that the profiler gave it when it began, then
// as in the file.
func (r *Record) Less(o *Record) bool {
	switch {
	case r.Key != o.Key:
		return r.Key < o.Key
	case r.Kind.Device() != o.Kind.Device():
		return !r.Kind.Device()
	case r.Duration != o.Duration:
		return r.Duration > o.Duration
	case r.Kind != o.Kind:
		return r.Kind < o.Kind
	case r.Kind == KindFrame && r.Correlation != o.Correlation:
		return r.Correlation < o.Correlation
	}
	return r.Seq < o.Seq
}
