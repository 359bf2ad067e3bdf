// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"fmt"
	"os"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// ran returns an outermost operation of equal runs, as Profiler.Snapshot has them.
func ran(info report.Info, n int64, each time.Duration) report.Operation {
	f := report.Figures{Count: n, Duration: report.Durations{
		Count: n, Total: time.Duration(n) * each, Min: each, Max: each, Mean: each, P50: each, P99: each,
	}}
	return report.Operation{Info: info, Parent: -1, Path: []string{info.Name}, All: f}
}

func ExampleSummary_WriteText() {
	start := time.Unix(1_700_000_000, 0)
	s := report.Summary{
		Start: start, End: start.Add(10 * time.Millisecond), Covered: 5 * time.Millisecond, Timed: 2,
		Operations: []report.Operation{
			ran(report.Info{Name: "layer"}, 1, 4*time.Millisecond),
			ran(report.Info{Name: "h2d", Category: "data"}, 1, time.Millisecond),
		},
	}
	s.Operations[0].ShareOfTotal, s.Operations[1].ShareOfTotal = .8, .2
	_ = s.WriteText(os.Stdout)
	// Output:
	// GPU sections: 10.00ms of wall time, 50.00 % of it in sections
	//
	// Time                     count   total %parent  %all    mean  stddev     min     p50     p99     max
	// layer                        1 4.000ms       -  80.0 4.000ms     0ns 4.000ms 4.000ms 4.000ms 4.000ms
	// h2d                          1 1.000ms       -  20.0 1.000ms     0ns 1.000ms 1.000ms 1.000ms 1.000ms
	//
	// Category                         count     total  %total      memory        PCIe      GB/s   TFLOP/s
	// data                                 1   1.000ms    20.0           -           -         -         -
	// (no category)                        1   4.000ms    80.0           -           -         -         -
}

// Reports the findings of a summary, with the caller's or the default thresholds.
func ExampleSummary_Findings() {
	copies := ran(report.Info{Name: "h2d", Type: "copy", Direction: "host_to_device", HostMemory: "pageable"}, 20, 50*time.Millisecond)
	copies.ShareOfTotal = 1
	for _, f := range (report.Summary{Operations: []report.Operation{copies}}).Findings(report.Thresholds{}) {
		fmt.Println(f.Kind)
	}
	// Output: pageable_copies
}

// One category of a summary, with only its own rows.
func ExampleSummary_Category() {
	s := report.Summary{Operations: []report.Operation{
		ran(report.Info{Name: "data section", Category: "data"}, 1, time.Millisecond),
		ran(report.Info{Name: "compute section", Category: "compute"}, 1, time.Millisecond),
	}}
	for _, o := range s.Category("data").Operations {
		fmt.Println(o.Info.Name, o.All.Duration.Total)
	}
	// Output: data section 1ms
}
