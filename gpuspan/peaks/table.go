// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

import (
	_ "embed" // of the table
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Device is one row of the table. Zero fields are unknown.
type Device struct {
	// Name is the name of the model in this table: "H100 SXM5 80GB".
	Name string
	// Vendor is "NVIDIA" or "AMD".
	Vendor string
	// MemoryBandwidth is the peak of device memory in bytes per second, reads and writes together.
	MemoryBandwidth float64
	// MemorySize is the nominal size of device memory in bytes (GB of the data sheet × 1e9), used
	// to recognise memory slices; the driver reports a little more or less.
	MemorySize float64
	// FLOPs are the dense peaks in FLOP per second (operations per second for int8).
	FLOPs FLOPRates
	// Host is the link to the host.
	Host HostLink
	// Interconnect is the peak of NVLink, or of Infinity Fabric links to other GPUs, in bytes per
	// second in one direction, all links together. Zero also for models that have none.
	Interconnect float64
	// Domain is the number of devices that reach each other at Interconnect: the devices of one
	// board or rack, or two connected by a bridge. A collective over more devices also uses other
	// links.
	Domain int
	// Power is the device's default power limit (TDP, TBP), in watts.
	Power float64
	// SMs is the number of streaming multiprocessors (NVIDIA) or compute units (AMD).
	SMs int
	// Source is the vendor's public document that the row was taken from.
	Source string

	names []string       // as drivers report them, see normalise
	mig   map[string]int // MIG profile to SMs, as `nvidia-smi mig -lgip` lists them
}

// FLOPRates are dense peaks by precision in FLOP per second, for INT8 in operations per second; 0
// means unknown or unsupported.
type FLOPRates struct {
	FP64, FP32, TF32, FP16, BF16, FP8, FP4, INT8 float64
}

// Precisions returns the values of gpu.flop.precision, in the order of FLOPRates.
func Precisions() []string {
	return []string{"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"}
}

// Of returns the peak of a precision, by its value of gpu.flop.precision, in FLOP per second; 0 if
// unknown.
func (r *FLOPRates) Of(precision string) float64 {
	if p := r.field(precision); p != nil {
		return *p
	}
	return 0
}

// Set sets the peak of a precision in FLOP per second. It returns false if the name is not in
// [Precisions].
func (r *FLOPRates) Set(precision string, rate float64) bool {
	p := r.field(precision)
	if p != nil {
		*p = rate
	}
	return p != nil
}

func (r *FLOPRates) field(precision string) *float64 {
	if i := slices.Index(Precisions(), precision); i >= 0 {
		return [...]*float64{&r.FP64, &r.FP32, &r.TF32, &r.FP16, &r.BF16, &r.FP8, &r.FP4, &r.INT8}[i]
	}
	return nil
}

// Scale returns the rates multiplied by a factor.
func (r FLOPRates) Scale(by float64) FLOPRates {
	return FLOPRates{r.FP64 * by, r.FP32 * by, r.TF32 * by, r.FP16 * by, r.BF16 * by, r.FP8 * by, r.FP4 * by, r.INT8 * by}
}

// table is embedded: it need not be shipped, and a test reads all of it.
//
//go:embed table.csv
var table string

// Units of data sheets.
const (
	giga = 1e9
	tera = 1e12
)

// rows returns the rows of the table. A test ensures that it can be parsed.
var rows = sync.OnceValue(func() []Device {
	d, _ := read(table)
	return d
})

func read(table string) (out []Device, err error) {
	r := csv.NewReader(strings.NewReader(table))
	r.Comment = '#'
	records, err := r.ReadAll()
	for i, record := range records {
		d, derr := device(record)
		switch {
		case i == 0: // names of columns
		case derr != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", record[0], derr))
		default:
			out = append(out, d)
		}
	}
	return out, err
}

// device reads a row, whose columns the table describes.
func device(row []string) (d Device, err error) {
	number := func(s string) float64 {
		if s == "" {
			return 0
		}
		v, e := strconv.ParseFloat(s, 64)
		if e != nil {
			err = e
		}
		return v
	}
	d = Device{
		Name: row[0], names: strings.Split(row[1], "|"), Vendor: row[2], MemorySize: number(row[3]) * giga,
		MemoryBandwidth: number(row[4]) * giga, Power: number(row[5]), SMs: int(number(row[6])),
		Interconnect: number(row[8]) / 2 * giga, Domain: int(number(row[9])), Source: row[19],
	}
	if bothWays, ok := strings.CutPrefix(row[7], "c2c "); ok {
		d.Host.C2C = number(bothWays) / 2 * giga
	} else {
		generation, lanes, _ := strings.Cut(row[7], "x")
		d.Host.Generation, d.Host.Lanes = int(number(generation)), int(number(lanes))
	}
	for i, p := range Precisions() {
		d.FLOPs.Set(p, number(row[10+i])*tera)
	}
	for s := range strings.FieldsSeq(row[18]) {
		if d.mig == nil {
			d.mig = map[string]int{}
		}
		profile, sms, _ := strings.Cut(s, "=")
		d.mig[profile] = int(number(sms))
	}
	return d, err
}
