// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"fmt"
	"os"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

func ExampleSummary_WriteText() {
	now := time.Unix(1_700_000_000, 0)
	c := report.NewCollector(report.WithClock(func() time.Time {
		t := now
		now = now.Add(
			10 * time.Millisecond)
		return t
	}))
	copyIn := c.Node(0, report.Info{Name: "h2d", Category: "data"})
	layer := c.Node(0, report.Info{Name: "layer"})
	gemm := c.Node(layer, report.Info{Name: "gemm"})
	at := time.Unix(1_700_000_000, 0).UnixNano()
	c.Section(copyIn, report.Sample{Timed: true, Start: at, Duration: time.Millisecond, PCIe: report.Transfer{ToDevice: 25e6}})
	c.Section(layer, report.Sample{Timed: true, Start: at + 1e6, Duration: 4 * time.Millisecond})
	c.Section(gemm, report.Sample{
		Timed: true, Start: at + 1e6, Duration: 3 * time.Millisecond, FLOPs: 1.2e12,
		Precision: "bf16",
	})
	_ = c.Summary().WriteText(os.Stdout)
	// Output:
	// GPU sections: 10.00ms of wall time, 50.00 % of it in sections
	//
	// Time                     count   total %parent  %all    mean  stddev     min     p50     p99     max
	// layer                        1 4.000ms    80.0  80.0 4.000ms     0ns 4.000ms 4.000ms 4.000ms 4.000ms
	//   gemm                       1 3.000ms    75.0  60.0 3.000ms     0ns 3.000ms 3.000ms 3.000ms 3.000ms
	// h2d                          1 1.000ms    20.0  20.0 1.000ms     0ns 1.000ms 1.000ms 1.000ms 1.000ms
	//
	//                          ──── memory, GB/s ────  ─── PCIe, GB/s ────
	// Work                       read   write     all to dev   from    all  TFLOP/s  items/s     % of peak
	// layer
	//   gemm                        -       -       -      -      -      -    400.0        -             -
	// h2d                           -       -       -  25.00      -  25.00        -        -             -
	//
	// Category                         count     total  %total      memory        PCIe      GB/s   TFLOP/s
	// data                                 1   1.000ms    20.0           -    25.00 MB     25.00         -
	// (no category)                        1   4.000ms    80.0           -           -         -         -
}

// Reports the findings of a summary, with the caller's or the default thresholds.
func ExampleSummary_Findings() {
	c := report.NewCollector()
	copyIn := c.Node(0, report.Info{Name: "h2d", Type: "copy", Direction: "host_to_device", HostMemory: "pageable"})
	at := time.Unix(1_700_000_000, 0).UnixNano()
	for i := range int64(20) {
		c.Section(copyIn, report.Sample{
			Timed: true, Start: at + i*1e8, Duration: 50 * time.Millisecond, PCIe: report.Transfer{ToDevice: 100e6}, Occurrence: i + 1,
		})
	}
	for _, f := range c.Summary().Findings(report.Thresholds{}) {
		fmt.Println(f.Kind)
	}
	// Output: pageable_copies
}

// One category of a summary, with only its own rows.
func ExampleSummary_Category() {
	c := report.NewCollector()
	at := time.Unix(1_700_000_000, 0).UnixNano()
	for i, category := range []string{"data", "compute"} {
		n := c.Node(0, report.Info{Name: category + " section", Category: category})
		c.Section(n, report.Sample{Timed: true, Start: at + int64(i)*1e6, Duration: time.Millisecond})
	}
	for _, o := range c.Summary().Category("data").Operations {
		fmt.Println(o.Info.Name, o.All.Duration.Total)
	}
	// Output: data section 1ms
}

// Two runs, before and after a change.
func ExampleCompare() {
	run := func(d time.Duration) report.Summary {
		c := report.NewCollector()
		gemm := c.Node(0, report.Info{Name: "gemm"})
		at := time.Unix(1_700_000_000, 0).UnixNano()
		for i := range int64(10) {
			c.Section(gemm, report.Sample{Timed: true, Start: at + i*1e9, Duration: d, Occurrence: i + 1})
		}
		return c.Summary()
	}
	for _, change := range report.Compare(run(4*time.Millisecond), run(3*time.Millisecond)) {
		fmt.Println(change.Path, change.Before.Duration.Mean, change.After.Duration.Mean, change.Ratio())
	}
	// Output: [gemm] 4ms 3ms 0.75
}
