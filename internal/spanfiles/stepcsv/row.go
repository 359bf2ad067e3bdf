// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// Phase is the time of one phase of a step.
type Phase struct {
	Name     string        // data, forward, backward, optimizer, comm, or a further one
	Duration time.Duration // union of its intervals in the step
}

// Row is one step.
type Row struct {
	Step     int64         // number of the step
	Epoch    int64         // epoch of the step; valid if HasEpoch
	HasEpoch bool          // Epoch is known; otherwise its column is empty
	Phases   []Phase       // each phase once; Stats.Undeclared counts the time of phases without a column
	Overlap  time.Duration // sum of the phases − their union, when HasSplit
	Other    time.Duration // step − union of the phases, when HasSplit
	HasSplit bool          // Overlap and Other are known
	Duration time.Duration // from boundary to boundary, on the device
	Items    int64         // number of items; 0: not stated
}

// named are the phases for which every file has a column, in order.
var named = []struct{ phase, column string }{
	{semconv.GPUStepPhaseNameData, "t_data_ms"},
	{semconv.GPUStepPhaseNameForward, "t_fwd_ms"},
	{semconv.GPUStepPhaseNameBackward, "t_bwd_ms"},
	{semconv.GPUStepPhaseNameOptimizer, "t_opt_ms"},
	{semconv.GPUStepPhaseNameComm, "t_comm_ms"},
}

const firstPhase = 2 // columns before the phases

// columns are the header and the column of each phase.
type columns struct {
	header []string
	phase  map[string]int
}

// newColumns returns the columns with further phases, in the order given. Names whose column exists
// already are rejected.
func newColumns(further []string) (columns, error) {
	c := columns{header: []string{"step", "epoch"}, phase: map[string]int{}}
	for i, n := range named {
		c.header = append(c.header, n.column)
		c.phase[n.phase] = firstPhase + i
	}
	c.header = append(c.header, "t_overlap_ms", "t_misc_ms", "t_step_ms", "ips_step")
	for _, p := range further {
		if _, ok := c.phase[p]; ok {
			continue // declared twice, or one that has its column anyway
		}
		column := "t_" + p + "_ms"
		if p == "" || strings.ContainsAny(p, ",\"\r\n") || slices.Contains(c.header, column) {
			return columns{}, fmt.Errorf("phase %q cannot have a separate column", p)
		}
		c.phase[p] = len(c.header)
		c.header = append(c.header, column)
	}
	return c, nil
}

func (c columns) head() []byte {
	var b bytes.Buffer
	write(&b, c.header)
	return b.Bytes()
}

func write(b *bytes.Buffer, record []string) {
	w := csv.NewWriter(b)
	_ = w.Write(record) // into memory
	w.Flush()
}

// further returns the phases of a header, and false if it was not written by this package.
func further(header []string) ([]string, bool) {
	fixed, _ := newColumns(nil)
	n := len(fixed.header)
	if len(header) < n || !slices.Equal(header[:n], fixed.header) {
		return nil, false
	}
	var phases []string
	for _, h := range header[n:] {
		p, ok := strings.CutPrefix(h, "t_")
		p, ok2 := strings.CutSuffix(p, "_ms")
		if !ok || !ok2 {
			return nil, false
		}
		phases = append(phases, p)
	}
	return phases, true
}

// line encodes a row, and returns how much time went to phases without a column.
func (c columns) line(b *bytes.Buffer, r Row) (undeclared time.Duration) {
	record := make([]string, len(c.header))
	record[0] = strconv.FormatInt(r.Step, 10)
	if r.HasEpoch {
		record[1] = strconv.FormatInt(r.Epoch, 10)
	}
	times := map[int]time.Duration{}
	for _, p := range r.Phases {
		if at, ok := c.phase[p.Name]; ok {
			times[at] += p.Duration
		} else {
			undeclared += p.Duration
		}
	}
	for at, d := range times {
		record[at] = milliseconds(d)
	}
	after := firstPhase + len(named)
	if r.HasSplit {
		record[after] = milliseconds(r.Overlap)
		record[after+1] = milliseconds(r.Other + undeclared)
	}
	record[after+2] = milliseconds(r.Duration)
	if s := r.Duration.Seconds(); r.Items > 0 && s > 0 {
		record[after+3] = strconv.FormatFloat(float64(r.Items)/s, 'f', 3, 64)
	}
	write(b, record)
	return undeclared
}

// milliseconds writes all digits, so that rows add up.
func milliseconds(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	return fmt.Sprintf("%s%d.%06d", sign, d/time.Millisecond, d%time.Millisecond)
}
