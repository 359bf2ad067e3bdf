// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"
)

// WriteCSV writes one row for each operation and run set ("all", "first", "rest"), with a header. Durations are
// seconds, sizes bytes, rates per second, shares 0 to 1; what is not known is an empty field. Columns are only ever
// added at the end.
func (s Summary) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{ // errors of Write stay until Flush
		"path", "name", "category", "type", "device", "runs", "count", "timed", "total_seconds", "share_of_parent",
		"share_of_total",
		"min_seconds", "mean_seconds", "max_seconds", "stddev_seconds", "p50_seconds", "p99_seconds",
		"memory_read_bytes", "memory_write_bytes", "memory_bytes", "pcie_read_bytes", "pcie_write_bytes", "pcie_bytes",
		"memory_read_bytes_per_second", "memory_write_bytes_per_second", "memory_bytes_per_second",
		"pcie_read_bytes_per_second", "pcie_write_bytes_per_second", "pcie_bytes_per_second",
		"flops", "flop_precision", "flops_per_second", "items", "item_type", "items_per_second", "peak_share", "peak_of",
		"level",
	})
	for i := range s.Operations {
		o := &s.Operations[i]
		for _, set := range []struct {
			name string
			f    *Figures
		}{{"all", &o.All}, {"first", &o.First}, {"rest", &o.Rest}} {
			if set.f.Count > 0 {
				_ = c.Write(o.record(set.name, set.f))
			}
		}
	}
	c.Flush()
	return c.Error()
}

func (o *Operation) record(set string, f *Figures) []string {
	number := func(v float64) string {
		if v == 0 {
			return ""
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	integer := func(v int64) string {
		if v == 0 {
			return ""
		}
		return strconv.FormatInt(v, 10)
	}
	d, r := f.Duration, f.Rates()
	seconds := func(v time.Duration) string {
		if d.Count == 0 {
			return ""
		}
		return strconv.FormatFloat(v.Seconds(), 'g', -1, 64)
	}
	quantile := func(v time.Duration) string { return number(v.Seconds()) }
	shares, peak := [2]string{}, [2]string{}
	if set == "all" {
		shares = [2]string{number(o.ShareOfParent), number(o.ShareOfTotal)}
		peak = [2]string{number(o.PeakShare), o.PeakOf}
	}
	return []string{
		strings.Join(o.Path, " > "), o.Name, o.Category, o.Type, strconv.Itoa(o.Device), set,
		strconv.FormatInt(f.Count, 10), strconv.FormatInt(d.Count, 10), seconds(d.Total), shares[0], shares[1],
		seconds(d.Min), seconds(d.Mean), seconds(d.Max), seconds(d.StdDev), quantile(d.P50), quantile(d.P99),
		integer(f.Memory.Read), integer(f.Memory.Written), integer(f.Memory.Total()),
		integer(f.PCIe.Read), integer(f.PCIe.Written), integer(f.PCIe.Total()),
		number(r.MemoryRead), number(r.MemoryWritten), number(r.Memory), number(r.PCIeRead), number(r.PCIeWritten),
		number(r.PCIe),
		number(f.TotalFLOPs()), strings.Join(sortedKeys(f.FLOPs), " "), number(r.FLOPs),
		integer(f.Items), o.ItemType, number(r.Items), peak[0], peak[1], o.Level,
	}
}
