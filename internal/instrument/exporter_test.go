// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"fmt"
	"testing"

	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
)

// TestGeneratedTableOfExporters simulates dcgm-exporter by its collection interval, behind the
// pipeline kubernetes/dcgm-exporter with the waits that docs/kubernetes.md recommends: power is a
// mean of a second, and the refresh period is not known beforehand.
func TestGeneratedTableOfExporters(t *testing.T) {
	var specs []instrumenttest.Spec
	for _, x := range []struct{ collect, scrape float64 }{{30, 15}, {30, 5}, {15, 5}, {10, 5}, {5, 1}, {1, 1}} {
		specs = append(specs, instrumenttest.Spec{
			Name: fmt.Sprintf("%.0f s | %.0f s", x.collect, x.scrape), Refresh: x.collect, Read: x.scrape, Shake: .05, Window: 1,
			Assumed: 3600, Settle: x.collect + 2*x.scrape, MaxWait: 2*x.collect + 3*x.scrape,
		})
	}
	text := "| collected every | scraped every | spans of 0.1 s | 1 s | 10 s | 60 s |\n|---|---|--:|--:|--:|--:|\n"
	tableOf(specs, []float64{.1, 1, 10, 60}, 2, 100, nothing, func(spec *instrumenttest.Spec, list []summary) {
		text += row(spec, list)
	})
	generate(t, "kubernetes.md", "errors", text)
}
