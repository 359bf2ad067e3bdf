// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"

	"github.com/otelgpu/otelgpu/internal/prefetch"
)

// Handler receives the contents of a trace, in the order of the file. Slices are valid during the
// call. An error ends reading and is returned unchanged.
type Handler interface {
	// Wants reports whether events of a phase (0: none) are passed to Event. Others are only
	// counted.
	Wants(phase byte) bool
	// Event receives one element of traceEvents, or of a trace that is an array.
	Event(e *Event) error
	// Meta receives every other field of the top level: the key without quotes, the value as raw
	// JSON.
	Meta(key, value []byte) error
}

// Errors of Read; both are wrapped with what was found and its position.
var (
	ErrNotTrace  = errors.New("not a Chrome trace")
	ErrNoEvents  = fmt.Errorf("%w: it has no traceEvents", ErrNotTrace)
	ErrSyntax    = errors.New("broken JSON")
	ErrTruncated = errors.New("truncated")
)

const (
	window    = 1 << 18  // with half of it, two goroutines that wake each other cost up to a fifth of the time
	maxWindow = 64 << 20 // the longest event or field of the top level
)

// Stats counts what Read read.
type Stats struct {
	Bytes    int64 // of JSON
	Events   int64 // elements of traceEvents that are objects
	NoEvents int64 // elements that are not events, which are skipped
	Broken   int64 // events of which a name has unescaped quotes, which are skipped
	Rest     int64 // where something else begins after the end of the trace, which is not read; 0: nothing does
}

// reader scans a stream. Its results go to out: see ahead.go.
type reader struct {
	r     io.Reader
	buf   []byte
	pos   int
	off   int64 // of buf[0] in the stream
	eof   bool
	wants [256]bool // phases
	stats Stats
	known Layout
	out   *batch
	pipe  *prefetch.Pipe[*batch] // takes out when the window is used up
	h     Handler                // uses out at once, without a pipe
}

// Read reads a whole trace. A top-level object without the key traceEvents is rejected, and so is
// an empty stream. If the program has more than one processor, a goroutine reads r and scans it
// while h uses the earlier results; it has ended when Read returns. A panic of r becomes a panic of
// Read.
func Read(r io.Reader, h Handler) (Stats, error) {
	if runtime.GOMAXPROCS(0) > 1 {
		return newReader(r, h).ahead(h)
	}
	return newReader(r, h).alone(h)
}

func newReader(r io.Reader, h Handler) *reader {
	d := &reader{r: r, known: Layout{Seldom: seldom}, buf: make([]byte, 0, window), out: &batch{}}
	for phase := range d.wants {
		d.wants[phase] = h.Wants(byte(phase))
	}
	return d
}

// alone reads the document in this goroutine.
func (d *reader) alone(h Handler) (Stats, error) {
	d.h = h
	err := d.document()
	d.stats.Bytes = d.off + int64(d.pos)
	return d.stats, err
}

// fill extends the window with more of the stream, from pos on. At the end of the stream it returns
// io.EOF.
//
// It fills the window to its end, and doubles the window if an incomplete value takes more than
// half of it: whenever scanning starts again, there is at least twice as much as before. So
// scanning a value costs a constant number of passes, however long the value is and however little
// a read returns.
func (d *reader) fill() error {
	if d.eof {
		return io.EOF
	}
	if d.pipe != nil {
		if err := d.handOver(); err != nil {
			return err
		}
	}
	if d.pos > 0 {
		n := copy(d.buf, d.buf[d.pos:])
		d.buf = d.buf[:n]
		d.off += int64(d.pos)
		d.pos = 0
	}
	switch {
	case len(d.buf) >= maxWindow:
		return fmt.Errorf("%w: a value at byte %d is longer than %d bytes", ErrSyntax, d.off, maxWindow)
	case len(d.buf) > cap(d.buf)/2 && cap(d.buf) < maxWindow:
		d.buf = append(make([]byte, 0, min(2*cap(d.buf), maxWindow)), d.buf...)
	}
	before := len(d.buf)
	for empty := 0; len(d.buf) < cap(d.buf); {
		n, err := d.r.Read(d.buf[len(d.buf):cap(d.buf)])
		d.buf = d.buf[:len(d.buf)+n]
		switch {
		case errors.Is(err, io.EOF) && len(d.buf) == before:
			d.eof = true
			return io.EOF
		case errors.Is(err, io.EOF):
			d.eof = true
			return nil
		case err != nil && len(d.buf) == before:
			return err
		case err != nil: // events before the fault are used first
			d.r = failed{err}
			return nil
		case n > 0:
			empty = 0
			continue
		}
		if empty++; empty > 100 {
			return io.ErrNoProgress
		}
	}
	return nil
}

// failed is a stream that was interrupted.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// peek returns the next byte that is not white space.
func (d *reader) peek() (byte, error) {
	for {
		if d.pos = space(d.buf, d.pos); d.pos < len(d.buf) {
			return d.buf[d.pos], nil
		}
		if err := d.fill(); err != nil {
			return 0, d.ended(err)
		}
	}
}

func (d *reader) ended(err error) error {
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the file ends at byte %d, after %d events", ErrTruncated, d.off+int64(len(d.buf)),
			d.stats.Events)
	}
	return err
}

func (d *reader) syntax(at int, what string) error {
	return fmt.Errorf("%w at byte %d, after %d events: %s", ErrSyntax, d.off+int64(at), d.stats.Events, what)
}

// more resolves an error of scanning at pos: nil means that the window holds more now and scanning
// begins again.
func (d *reader) more(err error) error {
	if s, ok := errors.AsType[*syntaxError](err); ok {
		return d.syntax(s.at, s.what)
	}
	if err = d.fill(); err != nil {
		return d.ended(err)
	}
	return nil
}

func (d *reader) document() error {
	c, err := d.peek()
	if err != nil {
		if errors.Is(err, ErrTruncated) {
			return fmt.Errorf("%w: it is empty", ErrNotTrace)
		}
		return err
	}
	if c == 0xef { // byte order mark
		for len(d.buf) < d.pos+3 {
			if err := d.fill(); err != nil {
				return d.ended(err)
			}
		}
		d.pos += 3
		if c, err = d.peek(); err != nil {
			return err
		}
	}
	switch c {
	case '{':
		err = d.object()
	case '[':
		err = d.events(true)
	default:
		return fmt.Errorf("%w: it begins with %q, not with { or [", ErrNotTrace, c)
	}
	if err != nil {
		return err
	}
	switch _, err = d.peek(); {
	case err == nil:
		d.stats.Rest = d.off + int64(d.pos)
		return d.drain()
	case errors.Is(err, ErrTruncated):
		return nil
	}
	return err
}

// drain reads the rest after the trace, so that faults of the stream (a checksum) are met.
func (d *reader) drain() error {
	for {
		d.pos = len(d.buf)
		if err := d.fill(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (d *reader) object() error {
	d.pos++
	found := false
	if c, err := d.peek(); err != nil {
		return err
	} else if c == '}' {
		return ErrNoEvents
	}
	for {
		name, err := d.field()
		if err != nil {
			return err
		}
		c, err := d.peek()
		if err != nil {
			return err
		}
		if name == "traceEvents" && c == '[' {
			found = true
			err = d.events(false)
		} else {
			err = d.meta(name)
		}
		if err != nil {
			return err
		}
		if c, err = d.peek(); err != nil {
			return err
		}
		d.pos++
		switch c {
		case ',':
			if _, err = d.peek(); err != nil {
				return err
			}
		case '}':
			if !found {
				return ErrNoEvents
			}
			return nil
		default:
			return d.syntax(d.pos-1, "a comma or bracket is missing at the top level")
		}
	}
}

// field reads a key of the top level and its colon.
func (d *reader) field() (string, error) {
	for {
		if d.buf[d.pos] != '"' {
			return "", d.syntax(d.pos, "a key is missing at the top level")
		}
		k, next, err := key(d.buf, d.pos)
		if err != nil {
			if err = d.more(err); err != nil {
				return "", err
			}
			continue
		}
		name := string(k)
		d.pos = next
		c, err := d.peek()
		if err != nil {
			return "", err
		}
		if c != ':' {
			return "", d.syntax(d.pos, "a colon is missing at the top level")
		}
		d.pos++
		return name, nil
	}
}

func (d *reader) meta(name string) error {
	end, err := d.end()
	if err != nil {
		return err
	}
	d.out.metas = append(d.out.metas, meta{name, value{int32(d.pos), int32(end)}, len(d.out.list), d.stats.Events})
	d.pos = end
	return d.found()
}

// end returns where the value at pos ends; the window holds all of it then.
func (d *reader) end() (int, error) {
	for {
		end, err := skip(d.buf, d.pos)
		if err == nil {
			return end, nil
		}
		if err = d.more(err); err != nil {
			return 0, err
		}
	}
}

// events reads the array at pos. Where it is the whole file, its closing bracket may be missing, as
// Chrome's format allows for programs that crash while they write.
func (d *reader) events(whole bool) error {
	d.pos++
	first := true
	for {
		c, err := d.peek()
		if err != nil {
			if whole && !first && errors.Is(err, ErrTruncated) {
				return nil
			}
			return err
		}
		if c == ']' {
			d.pos++
			return nil
		}
		if c == ',' && !first {
			d.pos++
			if c, err = d.peek(); err != nil {
				return err
			}
			if c == ']' { // some writers end with a comma
				d.pos++
				return nil
			}
		} else if !first {
			return d.syntax(d.pos, "a comma is missing between events")
		}
		first = false
		if c != '{' {
			err = d.other()
		} else {
			err = d.one()
		}
		if err != nil {
			return err
		}
	}
}

// other passes over an element that is no event.
func (d *reader) other() error {
	end, err := d.end()
	if err == nil {
		d.pos = end
		d.stats.NoEvents++
	}
	return err
}

func (d *reader) one() error {
	for {
		list := append(d.out.list, parsed{})
		p := &list[len(list)-1]
		end, err := p.parse(d.buf, d.pos, &d.known, &d.wants)
		if err == nil {
			d.pos = end
			d.stats.Events++
			if !d.wants[p.phase] {
				return nil
			}
			p.end, p.events = int32(end), d.stats.Events
			d.out.list = list
			return d.found()
		}
		if s, ok := errors.AsType[*syntaxError](err); ok && d.resume(s.at) {
			return nil
		}
		if err = d.more(err); err != nil {
			return err
		}
	}
}

// nextEvent is the end of an event and the begin of the next one.
var nextEvent = regexp.MustCompile(`\}\s*,\s*\{\s*"ph"\s*:\s*"`)

// maxBroken is how many broken events are skipped; a file with more is broken as a whole.
const maxBroken = 16

// resume continues with the event after a broken one, if the window has it: PyTorch does not escape
// quotes in some names. The broken one must have its other fields once: two processes that wrote
// into one file at the same time break events in other ways.
func (d *reader) resume(at int) bool {
	place := nextEvent.FindIndex(d.buf[at:])
	if place == nil || d.stats.Broken == maxBroken {
		return false
	}
	event := d.buf[d.pos : at+place[0]+1]
	for _, field := range []string{`"ph"`, `"name"`, `"ts"`, `"dur"`, `"pid"`, `"tid"`} {
		if bytes.Count(event, []byte(field)) != 1 {
			return false
		}
	}
	d.stats.Broken++
	d.pos = at + place[0] + 1
	return true
}

// found passes results on immediately, without a pipe.
func (d *reader) found() error {
	if d.pipe != nil {
		return nil
	}
	d.out.buf = d.buf
	_, err := d.out.use(d.h)
	return err
}
