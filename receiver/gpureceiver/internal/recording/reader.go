// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

const (
	maxLine    = 1 << 20   // bytes
	maxWindow  = 128 << 20 // bytes of zstd window: bounds what a hostile file can allocate
	maxDevices = 1024
)

// Record is one line of a recording: a new list of devices, a sample, or an event.
type Record struct {
	Devices []gpusamplesextension.Device // when not nil
	Device  int
	Time    int64
	Values  []gpudata.Value // Device and Time as above
	Event   *gpusamplesextension.Event
}

// Reader reads a recording.
type Reader struct {
	Header  Header
	z       *zstd.Decoder
	lines   *bufio.Scanner
	n       int // of lines read
	devices int
}

// NewReader reads the first line.
func NewReader(r io.Reader) (*Reader, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	x := &Reader{z: z, lines: bufio.NewScanner(z)}
	x.lines.Buffer(nil, maxLine)
	if err := x.header(); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

func (r *Reader) header() error {
	if !r.lines.Scan() {
		if err := r.lines.Err(); err != nil {
			return fmt.Errorf("not a recording: %w", err)
		}
		return errors.New("not a recording: empty")
	}
	r.n = 1
	if err := json.Unmarshal(r.lines.Bytes(), &r.Header); err != nil || r.Header.Format != Format {
		return fmt.Errorf("not a recording: the first line is not that of format %q", Format)
	}
	if r.Header.Version < 1 || r.Header.Version > Version {
		return fmt.Errorf("recording has version %d, this reader knows 1 to %d (use a newer otelcol-gpu)", r.Header.Version,
			Version)
	}
	return nil
}

// LineError is a line that cannot be read; the ones after it can.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Err }

// Next reads one line. io.EOF at the end, io.ErrUnexpectedEOF when the file was cut off, a *LineError for a line that
// makes no sense.
func (r *Reader) Next() (Record, error) {
	if !r.lines.Scan() {
		switch err := r.lines.Err(); {
		case err == nil:
			return Record{}, io.EOF
		case errors.Is(err, io.ErrUnexpectedEOF):
			return Record{}, io.ErrUnexpectedEOF
		default:
			return Record{}, fmt.Errorf("after line %d: %w", r.n, err)
		}
	}
	r.n++
	rec, err := r.parse(r.lines.Bytes())
	if err != nil {
		return Record{}, &LineError{r.n, err}
	}
	return rec, nil
}

func (r *Reader) parse(text []byte) (Record, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Record{}, err
	}
	if l.Devices != nil {
		if len(l.Devices) > maxDevices {
			return Record{}, fmt.Errorf("%d devices, at most %d are possible", len(l.Devices), maxDevices)
		}
		for i := range l.Devices {
			if l.Devices[i].ID == "" {
				return Record{}, fmt.Errorf("device %d has no id", i)
			}
		}
		r.devices = len(l.Devices)
		return Record{Devices: l.Devices}, nil
	}
	if l.D < 0 || l.D >= r.devices {
		return Record{}, fmt.Errorf("device index %d is not among the %d devices", l.D, r.devices)
	}
	if l.T <= 0 {
		return Record{}, fmt.Errorf("time %d is not positive", l.T)
	}
	rec := Record{Device: l.D, Time: l.T}
	if l.E != "" {
		for kind, name := range eventNames {
			if name == l.E {
				rec.Event = &gpusamplesextension.Event{Time: l.T, Kind: kind, Code: l.Code, Count: l.Count}
			}
		}
		return rec, nil
	}
	for name, v := range l.V {
		if q, ok := gpudata.ByName(name); ok {
			rec.Values = append(rec.Values, gpudata.Value{Time: l.T, V: v, Device: uint16(l.D), Quantity: q})
		}
	}
	return rec, nil
}

// Close releases the decoder; the underlying reader stays open.
func (r *Reader) Close() { r.z.Close() }
