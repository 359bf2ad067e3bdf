// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ddsketch_test

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/report/ddsketch"
)

// gpuspan.WithReport takes the collector.
func ExampleNew() {
	c := report.NewCollector(report.WithSketch(ddsketch.New))
	n := c.Node(0, report.Info{Name: "step"})
	for i := range 10_000 {
		c.Section(n, report.Sample{Timed: true, Duration: time.Duration(i+1) * time.Microsecond, Occurrence: int64(i + 1)})
	}
	p99 := c.Summary().Operations[0].All.Duration.P99
	fmt.Println("within 1 % of 9.9ms:", (p99-9900*time.Microsecond).Abs() <= 99*time.Microsecond)
	// Output: within 1 % of 9.9ms: true
}
