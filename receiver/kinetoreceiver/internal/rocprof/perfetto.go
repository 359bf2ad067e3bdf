// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rocprof

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// ErrSyntax is returned for messages that are broken; ErrNoWork for traces without a record of rocprofv3.
var (
	ErrSyntax = errors.New("it is not a sequence of Perfetto packets")
	ErrNoWork = errors.New("no record of rocprofv3 in it")
)

// Numbers of fields (Perfetto, protos/perfetto/trace/perfetto_trace.proto).
const (
	tracePacket = 1

	packetSequence, packetInterned, packetFlags, packetTrackEvent = 10, 12, 13, 11
	packetCleared, packetCompressed, packetDescriptor             = 41, 50, 60

	descriptorProcess, processPID = 3, 1

	internedCategories, internedNames, internedKeys, internedTexts = 1, 2, 3, 29

	eventCategoryIID, eventAnnotation, eventType, eventNameIID, eventCategory, eventName = 3, 4, 9, 10, 22, 23

	annotationKeyIID, annotationUint, annotationInt, annotationText = 1, 3, 4, 6
	annotationKey, annotationTextIID                                = 10, 17
)

// sliceBegin is the type of an event that begins a slice.
const sliceBegin = 1

// maxPacket bounds a packet; the SDK writes at most some kilobytes.
const maxPacket = 16 << 20

// maxInterned bounds the texts that are remembered of a sequence, maxSequences the sequences.
const maxInterned, maxSequences = 1 << 20, 1 << 12

// sequence holds the texts that packets of one writer refer to by number.
type sequence struct{ categories, names, keys, texts map[uint64]string }

// perfetto reads a trace. Each slice of rocprofv3 states its begin, end and correlation in annotations, so that ends
// need not be paired and clocks not converted.
type perfetto struct {
	adder
	sequences map[uint64]*sequence
	others    int64 // slices of other programs
}

// ReadPerfetto reads a Perfetto trace that rocprofv3 wrote with --output-format pftrace.
func ReadPerfetto(p *profiletrace.Profile, from io.Reader) (Run, error) {
	t := &perfetto{adder: adder{p: p}, sequences: map[uint64]*sequence{}}
	b := bufio.NewReaderSize(from, 1<<16)
	var packet []byte
	for {
		next, err := t.next(b, packet[:0])
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			packet = next
			err = t.packet(packet)
		}
		if err != nil {
			return t.done(), err
		}
	}
	if t.run.Records == 0 {
		return t.done(), ErrNoWork
	}
	if t.others > 0 {
		t.run.Faults = append(t.run.Faults, fmt.Sprintf("%d slices of other programs were not read", t.others))
	}
	return t.done(), nil
}

// next reads a packet; the error is io.EOF at the end of the trace only.
func (t *perfetto) next(b *bufio.Reader, packet []byte) ([]byte, error) {
	start := t.run.Bytes
	packet, err := t.read(b, packet)
	switch {
	case errors.Is(err, io.EOF) && t.run.Bytes == start:
		return nil, io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w: it ends within a packet at byte %d", ErrTruncated, t.run.Bytes)
	case errors.Is(err, ErrSyntax):
		return nil, fmt.Errorf("%w at byte %d", err, start)
	}
	return packet, err
}

// read reads the tag, size and content of a packet.
func (t *perfetto) read(b *bufio.Reader, packet []byte) ([]byte, error) {
	counted := countedBytes{b, &t.run.Bytes}
	tag, err := binary.ReadUvarint(counted)
	if err != nil {
		return nil, err
	}
	if tag != tracePacket<<3|uint64(protowire.BytesType) {
		return nil, ErrSyntax
	}
	size, err := binary.ReadUvarint(counted)
	if err != nil {
		return nil, err
	}
	if size > maxPacket {
		return nil, fmt.Errorf("%w: a packet of %d bytes", ErrSyntax, size)
	}
	packet = append(packet, make([]byte, size)...)
	n, err := io.ReadFull(b, packet)
	t.run.Bytes += int64(n)
	return packet, err
}

// countedBytes counts the bytes that are read one by one.
type countedBytes struct {
	b *bufio.Reader
	n *int64
}

func (c countedBytes) ReadByte() (byte, error) {
	x, err := c.b.ReadByte()
	if err == nil {
		*c.n++
	}
	return x, err
}

// field is a field of a message: a number or bytes.
type field struct {
	number protowire.Number
	n      uint64
	b      []byte
}

// fields calls each for the fields of a message; false if it is broken.
func fields(b []byte, each func(f field)) bool {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		f := field{number: num}
		switch kind {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.b, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return false
		}
		each(f)
		b = b[n:]
	}
	return true
}

// packet reads a packet. One that is broken is counted, and costs itself only.
func (t *perfetto) packet(b []byte) error {
	var seq, flags uint64
	var interned, event, descriptor [][]byte
	cleared, compressed := false, false
	if !fields(b, func(f field) {
		switch f.number {
		case packetSequence:
			seq = f.n
		case packetFlags:
			flags = f.n
		case packetCleared:
			cleared = f.n != 0
		case packetInterned:
			interned = append(interned, f.b)
		case packetTrackEvent:
			event = append(event, f.b)
		case packetDescriptor:
			descriptor = append(descriptor, f.b)
		case packetCompressed:
			compressed = true
		}
	}) {
		t.p.Skip("broken packet")
		return nil
	}
	if compressed {
		t.p.Skip("compressed packet")
	}
	s := t.sequences[seq]
	if s == nil || cleared || flags&1 != 0 {
		if s == nil && len(t.sequences) >= maxSequences {
			t.p.Skip("packet of too many writers")
			return nil
		}
		s = &sequence{map[uint64]string{}, map[uint64]string{}, map[uint64]string{}, map[uint64]string{}}
		t.sequences[seq] = s
	}
	for _, x := range interned {
		s.intern(x)
	}
	for _, x := range descriptor {
		t.process(x)
	}
	for _, x := range event {
		if err := t.event(s, x); err != nil {
			return err
		}
	}
	return nil
}

// process takes the number of the process from the descriptor of a track.
func (t *perfetto) process(descriptor []byte) {
	fields(descriptor, func(f field) {
		if f.number == descriptorProcess {
			fields(f.b, func(f field) {
				if f.number == processPID {
					t.run.PID = int64(int32(f.n)) //nolint:gosec // the field is an int32
				}
			})
		}
	})
}

// intern remembers texts: each has a number in field 1 and the text in field 2.
func (s *sequence) intern(b []byte) {
	fields(b, func(f field) {
		var to map[uint64]string
		switch f.number {
		case internedCategories:
			to = s.categories
		case internedNames:
			to = s.names
		case internedKeys:
			to = s.keys
		case internedTexts:
			to = s.texts
		default:
			return
		}
		var id uint64
		var text string
		fields(f.b, func(f field) {
			switch f.number {
			case 1:
				id = f.n
			case 2:
				text = string(f.b)
			}
		})
		if len(to) < maxInterned {
			to[id] = text
		}
	})
}

// event adds the record of a slice.
func (t *perfetto) event(s *sequence, b []byte) error {
	var x record
	kind, begin := "", false
	var annotations [][]byte
	if !fields(b, func(f field) {
		switch f.number {
		case eventType:
			begin = f.n == sliceBegin
		case eventCategoryIID:
			kind = s.categories[f.n]
		case eventCategory:
			kind = string(f.b)
		case eventNameIID:
			x.name = s.names[f.n]
		case eventName:
			x.name = string(f.b)
		case eventAnnotation:
			annotations = append(annotations, f.b)
		}
	}) {
		t.p.Skip("broken event")
		return nil
	}
	if !begin {
		return nil
	}
	switch kind {
	case "kernel_dispatch":
		x.kind, x.name = event.KindKernel, strings.TrimSuffix(x.name, ".kd")
	case "memory_copy":
		x.kind = event.KindCopy
	case "hip_api":
		x.kind = event.KindRuntime
	case "marker_api":
		x.kind = event.KindAnnotation
	case "hsa_api", "rccl_api", "rocdecode_api", "rocjpeg_api", "hipfile_api", "memory_allocation", "scratch_memory":
		return nil // as of JSON, these are not read
	default:
		t.others++
		return nil
	}
	for _, a := range annotations {
		key, n, text := s.annotation(a)
		switch key {
		case "begin_ns":
			x.start = n
		case "end_ns":
			x.end = n
		case "tid":
			x.thread = n
		case "corr_id":
			x.correlation = n
		case "stream_ID":
			x.stream = n
		case "queue":
			x.queue = n + 1 // counted from 0
		case "agent", "dst_agent":
			x.agent = text
		case "src_agent":
			x.source = text
		case "copy_bytes":
			x.bytes, x.hasBytes = n, true
		}
	}
	return t.add(&x) // grid and block are stated as products over the axes only
}

// annotation returns the key and the value of an annotation, a number also as text.
func (s *sequence) annotation(b []byte) (key string, n int64, text string) {
	number := func(v uint64) {
		if v <= math.MaxInt64 {
			n, text = int64(v), strconv.FormatUint(v, 10)
		}
	}
	fields(b, func(f field) {
		switch f.number {
		case annotationKeyIID:
			key = s.keys[f.n]
		case annotationKey:
			key = string(f.b)
		case annotationUint, annotationInt:
			number(f.n)
		case annotationText:
			text = string(f.b)
		case annotationTextIID:
			text = s.texts[f.n]
		}
	})
	return key, n, text
}
