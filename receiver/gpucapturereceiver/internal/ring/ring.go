// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ring

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/regularfile"
)

// Info describes the process that writes a ring.
type Info struct {
	PID, UID     uint32 // as the process sees itself
	PIDNamespace uint64 // inode
	Command      string
	Service      string // OTEL_SERVICE_NAME
	Resource     string // OTEL_RESOURCE_ATTRIBUTES
}

// Device is a device of the process; what the process could not find is empty.
type Device struct {
	ID     string // GPU-<uuid> or MIG-<uuid>
	Name   string
	Limits occupancy.Device // empty from older libraries
}

// Counts are the writer's counters since it started.
type Counts struct {
	Records       uint64 // written
	DroppedFull   uint64 // the reader was too slow
	DroppedBudget uint64 // beyond the window's budget
	DroppedCUPTI  uint64 // by CUPTI itself
	NamesDropped  uint64 // records without their name
	Pushes        uint64 // spans that the program has pushed, with the requests of batches
}

// Reason is why a window was refused or shortened.
type Reason uint32

// Reasons; the values are part of the format.
const (
	ReasonNone Reason = iota
	ReasonNoCUPTI
	ReasonBusy
	ReasonCUPTIError
	ReasonBudget
	ReasonMemory
)

var reasons = [...]string{"none", "no_cupti", "busy", "cupti_error", "budget", "memory"}

// String returns the reason as written in metrics.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "other"
}

// State is the state of the newest request.
type State struct {
	Open     bool
	Refused  bool
	Reason   Reason
	Message  string // for people; of a refusal
	Answered uint32 // number of the newest request that was handled
	CUPTI    uint32 // version of its interface; 0 before the first window
}

// Ring is one process's ring. Its methods are for one goroutine.
type Ring struct {
	Info Info

	file   *os.File
	page   []byte // the mapped header
	layout layout
	tail   uint64
	seen   uint64 // bytes of names read
	kept   int    // bytes of names kept
	names  map[uint32]string
	buf    []byte
}

// Open opens a ring. Links, files of other kinds and files whose owner is not the process that they
// name are rejected.
func Open(path string) (*Ring, error) {
	f, err := regularfile.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW)
	if errors.Is(err, regularfile.ErrIrregular) {
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if err != nil {
		return nil, err
	}
	r := &Ring{file: f, names: map[uint32]string{}}
	if err := r.open(); err != nil {
		r.Close()
		return nil, fmt.Errorf("cannot use ring %q: %w", path, err)
	}
	return r, nil
}

func (r *Ring) open() error {
	st, err := r.file.Stat()
	if err != nil {
		return err
	}
	if st.Size() < fullHeader || st.Size() > maxFile {
		return fmt.Errorf("%w: %d bytes long", ErrForeign, st.Size())
	}
	head := make([]byte, fullHeader)
	if _, err := r.file.ReadAt(head, 0); err != nil {
		return err
	}
	if string(head[:8]) != magic {
		return fmt.Errorf("%w: it begins with %q", ErrForeign, head[:8])
	}
	le := binary.LittleEndian
	if v := le.Uint32(head[8:]); v != version {
		return fmt.Errorf("%w: format %d, this Collector reads %d (use the library of the same release)", ErrForeign, v,
			version)
	}
	if le.Uint32(head[offReady:]) != 1 {
		return fmt.Errorf("%w: it is not finished", ErrForeign)
	}
	l := layout{
		recordSize: le.Uint32(head[16:]), contextSize: le.Uint32(head[20:]),
		records: le.Uint64(head[24:]), recordsCap: le.Uint64(head[32:]),
		contexts: le.Uint64(head[40:]), contextsCap: le.Uint64(head[48:]),
		names: le.Uint64(head[56:]), namesCap: le.Uint64(head[64:]),
	}
	if err := l.check(le.Uint32(head[12:]), uint64(st.Size())); err != nil {
		return err
	}
	r.layout = l
	r.Info = Info{
		PID: le.Uint32(head[72:]), UID: le.Uint32(head[76:]), PIDNamespace: le.Uint64(head[80:]),
		Command: text(head[104:168]),
		Service: text(head[offService : offService+128]), Resource: text(head[offService+128 : offDevices]),
	}
	if owner := st.Sys().(*syscall.Stat_t).Uid; owner != r.Info.UID && sameNamespace(r.Info.PIDNamespace) {
		return fmt.Errorf("%w: it belongs to user %d, but its header names user %d", ErrForeign, owner, r.Info.UID)
	}
	r.page, err = unix.Mmap(int(r.file.Fd()), 0, headerSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("cannot map its header: %w", err)
	}
	r.buf = make([]byte, chunk/int(l.recordSize)*int(l.recordSize))
	// What another reader has read is gone; a tail beyond the head is invalid.
	return r.guard(func() {
		r.tail = r.word64(offTail).Load()
		if head := r.word64(offHead).Load(); r.tail > head || head-r.tail > l.recordsCap {
			r.tail = head
		}
	})
}

// guard runs f, which accesses the mapped page. The writer, or an impostor, can truncate the file
// at any time: then the access is an error instead of the end of the process.
func (r *Ring) guard(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("%w: its header cannot be read (%v)", ErrBroken, e)
		}
	}()
	f()
	return nil
}

func (r *Ring) word64(at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.page[at])) //nolint:forbidigo // a mapped page, which Go does not move
}

func (r *Ring) word32(at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.page[at])) //nolint:forbidigo // a mapped page, which Go does not move
}

// Request requests a window of the process: its length, the kinds of record, at most budget of
// them. It returns the request's number.
func (r *Ring) Request(length time.Duration, kinds uint32, budget uint64) (uint32, error) {
	var number uint32
	err := r.guard(func() {
		r.word32(offKinds).Store(kinds)
		r.word64(offWindow).Store(uint64(max(length, 0)))
		r.word64(offBudget).Store(budget)
		number = cmp.Or(r.word32(offRequest).Load()+1, 1) // 0 means none
		r.word32(offRequest).Store(number)
	})
	if err == nil {
		r.wake(offRequest)
	}
	return number, err
}

// Cancel ends the window of that request now.
func (r *Ring) Cancel(request uint32) error {
	err := r.guard(func() { r.word32(offCancel).Store(request) })
	if err == nil {
		r.wake(offCancel)
	}
	return err
}

const futexWake = 1

func (r *Ring) wake(at int) {
	// If the page is gone the kernel returns EFAULT.
	address := uintptr(unsafe.Pointer(&r.page[at])) //nolint:forbidigo // a mapped page, which Go does not move
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, address, futexWake, 1, 0, 0, 0)
}

// State returns the state of the newest request.
func (r *Ring) State() (s State, err error) {
	err = r.guard(func() {
		// First, because the process stores it last: the rest then belongs to an answered request.
		s.Answered = r.word32(offAnswered).Load()
		state := r.word32(offState).Load()
		s.Open, s.Refused = state == 1, state == 2
		s.Reason, s.CUPTI = Reason(r.word32(offReason).Load()), r.word32(offCUPTIVersion).Load()
		if s.Refused {
			s.Message = text(bytes.Clone(r.page[offMessage : offMessage+messageSize]))
		}
	})
	return s, err
}

// Counts returns the writer's counters.
func (r *Ring) Counts() (c Counts, err error) {
	err = r.guard(func() {
		c = Counts{
			Records: r.word64(offHead).Load(), DroppedFull: r.word64(offDroppedFull).Load(),
			DroppedBudget: r.word64(offDroppedBudget).Load(), DroppedCUPTI: r.word64(offDroppedCUPTI).Load(),
			NamesDropped: r.word64(offNamesDropped).Load(), Pushes: r.word64(offContextsHead).Load(),
		}
	})
	return c, err
}

// Read passes on the records that were written since the last call, in the writer's order, and
// frees their space. Records are valid during the call only. It returns their number. It reads what
// is available at its start, at most that many, so it ends.
func (r *Ring) Read(most int, take func(Record)) (n int, err error) {
	var head uint64
	if err := r.guard(func() { head = r.word64(offHead).Load() }); err != nil {
		return 0, err
	}
	size := uint64(r.layout.recordSize)
	if head < r.tail || head-r.tail > r.layout.recordsCap {
		return 0, fmt.Errorf("%w: %d records written and %d read", ErrBroken, head, r.tail)
	}
	head = min(head, r.tail+uint64(max(most, 0)))
	for r.tail < head {
		at := r.tail & (r.layout.recordsCap - 1)
		count := min(head-r.tail, r.layout.recordsCap-at, uint64(len(r.buf))/size)
		part := r.buf[:count*size]
		if _, err := r.file.ReadAt(part, int64(r.layout.records+at*size)); err != nil {
			return n, fmt.Errorf("%w: %w", ErrBroken, err)
		}
		for i := uint64(0); i < uint64(len(part)); i += size {
			take(Record(part[i : i+RecordSize : i+RecordSize]))
		}
		r.tail += count
		n += int(count)
		if err := r.guard(func() { r.word64(offTail).Store(r.tail) }); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Discard frees the space of all available records, without reading them.
func (r *Ring) Discard() error {
	return r.guard(func() {
		r.tail = r.word64(offHead).Load()
		r.word64(offTail).Store(r.tail)
	})
}

// Name returns the text of a name's number; false if there was no room for it in the ring, or the
// ring is broken there.
func (r *Ring) Name(number uint32) (string, bool) {
	if number == NoName {
		return "", false
	}
	if s, ok := r.names[number]; ok {
		return s, true
	}
	if err := r.readNames(number); err != nil {
		return "", false
	}
	s, ok := r.names[number]
	return s, ok
}

// nameOverhead is the map's memory per name besides its text, so that many short names are bounded
// too.
const nameOverhead = 64

// readNames reads the names that were added since, up to the one with that number, in pieces,
// because the size stated in the file is not trustworthy. Names without text are ignored.
func (r *Ring) readNames(number uint32) error {
	var used uint64
	if err := r.guard(func() { used = r.word64(offNamesUsed).Load() }); err != nil {
		return err
	}
	used = min(used, r.layout.namesCap)
	raw := make([]byte, min(namesPiece, used-min(r.seen, used)))
	for r.seen < used {
		if _, found := r.names[number]; found {
			return nil
		}
		part := raw[:min(uint64(len(raw)), used-r.seen)]
		if _, err := r.file.ReadAt(part, int64(r.layout.names+r.seen)); err != nil {
			return err
		}
		base, last := r.seen, r.seen+uint64(len(part)) == used
		for at := uint64(0); ; {
			if at+4 > uint64(len(part)) {
				if last {
					return nil
				}
				break
			}
			length := uint64(binary.LittleEndian.Uint32(part[at:]))
			if length > maxName || last && at+4+length > uint64(len(part)) {
				r.seen = used // the rest is invalid
				return ErrBroken
			}
			if at+4+length > uint64(len(part)) {
				break // the next piece begins with it
			}
			if length > 0 && r.kept+int(length)+nameOverhead <= maxNames {
				r.kept += int(length) + nameOverhead
				r.names[uint32((base+at)/8)] = string(part[at+4 : at+4+length])
			}
			at += (4 + length + 7) / 8 * 8
			r.seen = min(base+at, used)
		}
	}
	return nil
}

const (
	maxName    = 4096
	namesPiece = 64 << 10 // bytes of names that are read at once; longer than the longest name
)

// Pushed returns the context of that number; false if it was overwritten, or never was.
func (r *Ring) Pushed(number uint64) (Pushed, bool) {
	if number == 0 {
		return Pushed{}, false
	}
	at := int64(r.layout.contexts + (number-1)%r.layout.contextsCap*uint64(r.layout.contextSize))
	var b [contextRecordSize]byte
	le := binary.LittleEndian
	for range 3 {
		if _, err := r.file.ReadAt(b[:], at); err != nil {
			return Pushed{}, false
		}
		first := le.Uint64(b[:])
		var again [8]byte
		if _, err := r.file.ReadAt(again[:], at); err != nil {
			return Pushed{}, false
		}
		if le.Uint64(again[:]) != first {
			continue // being written
		}
		if first != number || le.Uint64(b[8:]) != number {
			return Pushed{}, false
		}
		p := Pushed{Thread: le.Uint32(b[24:]), Flags: b[28]}
		copy(p.TraceID[:], b[32:48])
		copy(p.SpanID[:], b[48:56])
		p.Links, p.LinksLost = min(le.Uint32(b[56:]), MaxLinks), le.Uint32(b[60:])
		return p, true
	}
	return Pushed{}, false
}

// Devices returns the process's devices by CUDA's ordinal; none before the first window.
func (r *Ring) Devices() []Device {
	var b [offLimits - offDevices + maxDevices*limitsSize]byte
	if _, err := r.file.ReadAt(b[:], offDevices); err != nil {
		return nil
	}
	out := make([]Device, min(binary.LittleEndian.Uint32(b[:]), maxDevices))
	for i := range out {
		at := 8 + i*deviceSize
		of := b[offLimits-offDevices+i*limitsSize:]
		limit := func(i int) int64 { return int64(binary.LittleEndian.Uint32(of[4*i:])) }
		out[i] = Device{ID: text(b[at : at+64]), Name: text(b[at+64 : at+128]), Limits: occupancy.Device{
			Multiprocessors: limit(0), Threads: limit(1), Blocks: limit(2), Registers: limit(3), SharedMemory: limit(4),
			WarpSize: limit(5), Major: limit(6), Minor: limit(7),
		}}
	}
	return out
}

// Alive reports whether the process that writes the ring exists: it holds a lock as long as it
// lives.
func (r *Ring) Alive() bool {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: 0, Len: 1}
	if err := unix.FcntlFlock(r.file.Fd(), unix.F_GETLK, &lock); err != nil {
		return false
	}
	return lock.Type != unix.F_UNLCK
}

// Close releases the ring; the file stays.
func (r *Ring) Close() {
	if r.page != nil {
		_ = unix.Munmap(r.page)
		r.page = nil
	}
	_ = r.file.Close()
}

// text returns a C string, without control characters.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(bytes.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' {
			return '?'
		}
		return c
	}, b))
}

// sameNamespace reports whether that is this process's own namespace of process ids, where user ids
// mean the same, too.
func sameNamespace(inode uint64) bool {
	st, err := os.Stat("/proc/self/ns/pid")
	return err == nil && st.Sys().(*syscall.Stat_t).Ino == inode
}
