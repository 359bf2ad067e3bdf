// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"encoding/json"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

const flushEvery = time.Second

// Writer writes a recording.
type Writer struct {
	z       *zstd.Encoder
	enc     *json.Encoder
	flushed time.Time
	lines   int64
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
func (w *Writer) Devices(devices []gpusamplesextension.Device) error {
	return w.enc.Encode(struct {
		Devices []gpusamplesextension.Device `json:"devices"`
	}{append([]gpusamplesextension.Device{}, devices...)}) // no device is an empty list, not null
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
			if err := w.encode(line{D: int(e.Device), T: e.Time, E: name, Code: e.Code, Count: e.Count}); err != nil {
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
	w.lines++
	return w.enc.Encode(l)
}

// Lines is the number of sample and event lines so far.
func (w *Writer) Lines() int64 { return w.lines }

// Close ends the stream; the underlying writer stays open.
func (w *Writer) Close() error { return w.z.Close() }
