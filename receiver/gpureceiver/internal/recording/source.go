// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/regularfile"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// source plays a file. The first sample gets the time of Open; the others follow at the recorded
// distances, divided by the speed.
type source struct {
	path  string
	loop  bool
	speed float64
	now   func() time.Time

	file    *os.File
	reader  *Reader
	devices []devicesamples.Device
	next    *Record // read, not yet due
	origin  int64   // recorded time that was played at `started`; 0 before the first sample
	started int64   // unix ns
	last    int64   // played time of the newest sample
	samples int     // since the file was opened
}

// NewSource returns the source `replay` of a file: a recording, played as if it happened now.
func NewSource(path string, loop bool, speed float64, now func() time.Time) gpudata.Source {
	return &source{path: path, loop: loop, speed: speed, now: now}
}

func (*source) Name() string { return "replay" }

// Open implements gpudata.Source. It reads up to the first list of devices.
func (s *source) Open() error {
	if err := s.openFile(); err != nil {
		return err
	}
	s.started, s.origin, s.last = s.now().UnixNano(), 0, 0
	for {
		rec, err := s.reader.Next()
		if err != nil {
			s.closeFile()
			return fmt.Errorf("cannot replay %q: no devices in it: %w", s.path, err)
		}
		if rec.Devices != nil {
			s.setDevices(rec.Devices)
			return nil
		}
	}
}

func (s *source) openFile() error {
	f, err := regularfile.Open(s.path)
	if err != nil {
		return fmt.Errorf("cannot replay: %w", err)
	}
	r, err := NewReader(f)
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("cannot replay %q: %w", s.path, err)
	}
	s.file, s.reader, s.next, s.samples = f, r, nil, 0
	return nil
}

func (s *source) closeFile() {
	if s.file != nil {
		s.reader.Close()
		_ = s.file.Close()
		s.file = nil
	}
}

func (s *source) setDevices(devices []devicesamples.Device) {
	interval := time.Duration(float64(s.reader.Header.Interval) / s.speed)
	for i := range devices {
		devices[i].Source = "replay"
		devices[i].Interval = interval
	}
	s.devices = devices
}

func (s *source) Devices() []devicesamples.Device { return s.devices }

func (*source) Pace() time.Duration { return 100 * time.Millisecond }

func (s *source) Close() error {
	s.closeFile()
	return nil
}

// Read implements gpudata.Source: everything that is due. A list of devices in the middle ends the
// batch, because later lines refer to it.
func (s *source) Read(b *gpudata.Batch) error {
	now := s.now().UnixNano()
	for {
		if s.next == nil {
			rec, err := s.reader.Next()
			var bad *LineError
			switch {
			case errors.As(err, &bad):
				b.Dropped[gpudata.DropMalformed]++
				continue
			case err != nil:
				if more, rerr := s.rewind(err); !more {
					return rerr
				}
				continue
			}
			s.next = &rec
		}
		if s.next.Devices != nil {
			if len(b.Values)+len(b.Events) > 0 {
				return nil
			}
			s.setDevices(s.next.Devices)
			b.Changed = true
			s.next = nil
			continue
		}
		t := s.played(s.next.Time)
		if t > now {
			return nil
		}
		s.samples++
		for _, v := range s.next.Values {
			if v.Quantity == gpuquantity.Throttle && v.V > 0 {
				v.V = devicesamples.ThrottleMask(uint64(v.V))
			}
			b.Add(s.next.Device, v.Quantity, t, v.V)
		}
		if e := s.next.Event; e != nil {
			e.Time = t
			b.Events = append(b.Events, gpudata.Event{Device: uint16(s.next.Device), Event: *e})
		}
		s.last = max(s.last, t)
		s.next = nil
	}
}

// played maps recorded time to the present.
func (s *source) played(t int64) int64 {
	s.origin = cmp.Or(s.origin, t)
	return s.started + int64(float64(t-s.origin)/s.speed)
}

// rewind starts the file again at the end, one sampling interval after the last sample.
func (s *source) rewind(cause error) (more bool, err error) {
	if !errors.Is(cause, io.EOF) && !errors.Is(cause, io.ErrUnexpectedEOF) {
		return false, fmt.Errorf("cannot replay %q: %w", s.path, cause)
	}
	if !s.loop {
		return false, io.EOF
	}
	if s.samples == 0 {
		return false, fmt.Errorf("cannot replay %q in a loop: it has no samples", s.path)
	}
	s.closeFile()
	if err := s.openFile(); err != nil {
		return false, err
	}
	s.origin = 0
	step := max(int64(float64(s.reader.Header.Interval)/s.speed), int64(time.Millisecond))
	s.started = s.last + step
	return true, nil
}
