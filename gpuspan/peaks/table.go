// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

import (
	_ "embed" // of the table
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// table is in the module, not beside it: nobody has to ship it, and a test reads all of it.
//
//go:embed table.csv
var table string

// Units of data sheets.
const (
	giga = 1e9
	tera = 1e12
)

// rows are those of the table. A test holds that it can be read.
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
