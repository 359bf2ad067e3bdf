// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package recording is the file format of recorded device data, `.gpurec`.
//
// A recording is one zstd stream (RFC 8878; any number of frames) of lines of UTF-8 text, each a
// JSON object.
//
//	line 1      {"format":"otelgpu-recording","version":1,"source":"dcgm","host":"n1",
//	             "start":1764000000000000000,"interval":100000000}   (on one line)
//	devices     {"devices":[{"id":"GPU-…","name":"gpu0","model":"NVIDIA H200",…}]}
//	sample      {"d":0,"t":1764000000100000000,"v":{"energy":123.4,"power":312.5}}
//	event       {"d":0,"t":1764000000150000000,"e":"xid","code":79,"count":1}
//
// A devices line is the list that the index d of later lines refers to; it can occur again when the
// list changes. t is the time of the measurement in unix nanoseconds; samples of one device come in
// order of time for each quantity. The names in v are gpuquantity.Quantity names, in base units; e
// is xid, ecc_corrected, ecc_uncorrected or fault (what can be derived from samples, such as
// throttling, is not written). An event that the driver reports as an operational event has the key
// fault: {"module":"GPU-NVLINK","category":3,"code":4660,"severity":2}.
//
// Version 1 readers ignore keys and names that they do not know, so fields can be added; the
// version is raised when an old reader would misread. The stream is flushed every second: a
// truncated file is readable up to there.
package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// Format and Version are the values in the first line.
const (
	Format  = "otelgpu-recording"
	Version = 1
)

// Header is the first line.
type Header struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Source   string `json:"source"`
	Host     string `json:"host,omitempty"`
	Start    int64  `json:"start"`              // unix ns
	Interval int64  `json:"interval,omitempty"` // requested sampling interval, ns
}

// line is any line but the first.
type line struct {
	Devices []devicesamples.Device `json:"devices,omitempty"`
	D       int                    `json:"d"`
	T       int64                  `json:"t"`
	V       map[string]float64     `json:"v,omitempty"`
	E       string                 `json:"e,omitempty"`
	Code    int64                  `json:"code,omitempty"`
	Count   int64                  `json:"count,omitempty"`
	Fault   devicesamples.Fault    `json:"fault,omitzero"`
}

var eventNames = map[devicesamples.EventKind]string{
	devicesamples.EventXID:            "xid",
	devicesamples.EventECCCorrected:   "ecc_corrected",
	devicesamples.EventECCUncorrected: "ecc_uncorrected",
	devicesamples.EventFault:          "fault",
}

const (
	maxLine    = 1 << 20   // bytes
	maxWindow  = 128 << 20 // bytes of zstd window: bounds what a hostile file can allocate
	maxDevices = 1024
)

// Record is one line of a recording: a new list of devices, a sample, or an event.
type Record struct {
	Devices []devicesamples.Device // when not nil
	Device  int
	Time    int64
	Values  []gpudata.Value // Device and Time as above
	Event   *devicesamples.Event
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
		return fmt.Errorf("not a recording: the first line is not a header of format %q", Format)
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

// Next reads one line. io.EOF at the end, io.ErrUnexpectedEOF if the file is truncated, a
// *LineError for an invalid line.
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
				rec.Event = &devicesamples.Event{Time: l.T, Kind: kind, Code: l.Code, Count: l.Count, Fault: l.Fault}
			}
		}
		return rec, nil
	}
	for name, v := range l.V {
		if q, ok := gpuquantity.ByName(name); ok {
			rec.Values = append(rec.Values, gpudata.Value{Time: l.T, V: v, Device: uint16(l.D), Quantity: q})
		}
	}
	return rec, nil
}

// Close releases the decoder; the underlying reader stays open.
func (r *Reader) Close() { r.z.Close() }

const flushEvery = time.Second

// Writer writes a recording.
type Writer struct {
	z       *zstd.Encoder
	enc     *json.Encoder
	flushed time.Time
	Lines   int64 // of samples and events, so far
}

// NewWriter writes the first line of a recording to w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	h.Format, h.Version = Format, Version
	x := &Writer{z: z, enc: json.NewEncoder(z), flushed: time.Now()}
	return x, x.enc.Encode(h)
}

// Devices writes the list to which later batches refer.
func (w *Writer) Devices(devices []devicesamples.Device) error {
	return w.enc.Encode(struct {
		Devices []devicesamples.Device `json:"devices"`
	}{append([]devicesamples.Device{}, devices...)}) // no device is an empty list, not null
}

// Batch writes what one read gave. Values of one device with one time become one line.
func (w *Writer) Batch(b *gpudata.Batch) error {
	for i := 0; i < len(b.Values); {
		first := &b.Values[i]
		l := line{D: int(first.Device), T: first.Time, V: map[string]float64{}}
		for ; i < len(b.Values) && b.Values[i].Device == first.Device && b.Values[i].Time == first.Time; i++ {
			v := &b.Values[i]
			name := v.Quantity.String()
			if _, twice := l.V[name]; twice {
				break
			}
			l.V[name] = v.V
		}
		if err := w.encode(l); err != nil {
			return err
		}
	}
	for _, e := range b.Events {
		if name, ok := eventNames[e.Kind]; ok {
			l := line{D: int(e.Device), T: e.Time, E: name, Code: e.Code, Count: e.Count, Fault: e.Fault}
			if err := w.encode(l); err != nil {
				return err
			}
		}
	}
	if now := time.Now(); now.Sub(w.flushed) >= flushEvery {
		w.flushed = now
		return w.z.Flush()
	}
	return nil
}

func (w *Writer) encode(l line) error {
	w.Lines++
	return w.enc.Encode(l)
}

// Close ends the stream; the underlying writer stays open.
func (w *Writer) Close() error { return w.z.Close() }
