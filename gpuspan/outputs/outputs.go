// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package outputs compares the outputs of two runs of one program: sections record checksums of
// their results, a log lists the checksums of a run, and the first difference shows where two runs
// diverge.
//
//	format: checksum (16 hex digits), occurrence, operation as a Go string; one space between them
//	cbf29ce484222325 1 "layer 1"
package outputs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"strconv"
	"strings"
)

// Output is the checksum of one section's output.
type Output struct {
	Operation  string // name of the operation
	Occurrence int64  // number of the operation's section in the run, from 1
	Checksum   uint64 // of [Checksum]
}

// Read reads a log of [gpuspan.WithOutputLog]. If a line is invalid, it returns the outputs before
// it and an error that names the line.
func Read(r io.Reader) ([]Output, error) {
	var out []Output
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		o, err := parseOutput(lines.Text())
		if err != nil {
			return out, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, o)
	}
	if err := lines.Err(); err != nil {
		return out, fmt.Errorf("cannot read outputs: %w", err)
	}
	return out, nil
}

var errOutput = errors.New(
	`must be a checksum of 16 hex digits, a number from 1 and a quoted name, as in cbf29ce484222325 1 "layer 1"`)

func parseOutput(line string) (o Output, err error) {
	sum, rest, _ := strings.Cut(line, " ")
	number, name, _ := strings.Cut(rest, " ")
	o.Checksum, err = strconv.ParseUint(sum, 16, 64)
	if err == nil {
		o.Occurrence, err = strconv.ParseInt(number, 10, 64)
	}
	if err == nil {
		o.Operation, err = strconv.Unquote(name)
	}
	if err != nil || len(sum) != 16 || o.Occurrence < 1 {
		return Output{}, fmt.Errorf("%w, found %q", errOutput, line)
	}
	return o, nil
}

// FirstDivergence returns the index of the first output in which two runs differ in operation,
// occurrence or checksum. If one run is a prefix of the other, that is the length of the shorter
// one. It returns false if the runs are equal.
func FirstDivergence(a, b []Output) (int, bool) {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i, true
		}
	}
	return n, len(a) != len(b)
}

// Checksum returns the 64-bit FNV-1a hash of a host buffer of float32, over little-endian bytes on
// every machine. Equal bits give equal checksums; +0 and −0 differ, and so do NaNs of different
// bits.
func Checksum(data []float32) uint64 {
	h := fnv.New64a()
	var b [4]byte
	for _, f := range data {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(f))
		_, _ = h.Write(b[:]) // cannot fail
	}
	return h.Sum64()
}

// Format formats a checksum as in gpu.output.checksum: 16 lower-case hex digits.
func Format(sum uint64) string { return fmt.Sprintf("%016x", sum) }
