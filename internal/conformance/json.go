// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// JSON checks OTLP in JSON: requests of traces, metrics and logs one after the other, as the Collector's file exporter
// writes them, one on each line or laid out over several. name is the file's, for complaints. The error is of what is
// no JSON or no OTLP; what stands before it was checked.
func (r *Report) JSON(name string, in io.Reader) error {
	defer r.At("")
	lines := &lineCounter{in: in}
	d := json.NewDecoder(lines)
	for {
		var raw json.RawMessage
		before := d.InputOffset()
		err := d.Decode(&raw)
		line := lines.at(d.InputOffset() - int64(len(raw)))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read %s as JSON after line %d: %w", name, lines.at(before), err)
		}
		r.At(fmt.Sprintf("%s:%d", name, line))
		if err := r.request(raw); err != nil {
			return fmt.Errorf("cannot read %s:%d as OTLP: %w", name, line, err)
		}
	}
}

// request checks one request, of whatever signals it has.
func (r *Report) request(raw []byte) error {
	var signals struct {
		Spans   json.RawMessage `json:"resourceSpans"`
		Metrics json.RawMessage `json:"resourceMetrics"`
		Logs    json.RawMessage `json:"resourceLogs"`
	}
	if err := json.Unmarshal(raw, &signals); err != nil {
		return err
	}
	if signals.Spans == nil && signals.Metrics == nil && signals.Logs == nil {
		return errors.New("it has neither resourceSpans nor resourceMetrics nor resourceLogs")
	}
	if signals.Spans != nil {
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(raw)
		if err != nil {
			return err
		}
		r.Traces(td)
	}
	if signals.Metrics != nil {
		md, err := new(pmetric.JSONUnmarshaler).UnmarshalMetrics(raw)
		if err != nil {
			return err
		}
		r.Metrics(md)
	}
	if signals.Logs != nil {
		ld, err := new(plog.JSONUnmarshaler).UnmarshalLogs(raw)
		if err != nil {
			return err
		}
		r.Logs(ld)
	}
	return nil
}

// lineCounter remembers where lines end that were read and not asked for yet.
type lineCounter struct {
	in    io.Reader
	read  int64
	ends  []int64 // offsets of line ends, ascending
	lines int     // line ends before the first of ends
}

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	for rest, at := p[:n], c.read; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		at += int64(i) + 1
		c.ends = append(c.ends, at)
		rest = rest[i+1:]
	}
	c.read += int64(n)
	return n, err
}

// at is the line of an offset, from 1. Offsets do not decrease.
func (c *lineCounter) at(offset int64) int {
	for len(c.ends) > 0 && c.ends[0] <= offset {
		c.ends = c.ends[1:]
		c.lines++
	}
	return c.lines + 1
}
