// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
)

func exporter(collect, scrape float64) instrumenttest.Spec {
	return instrumenttest.Spec{
		Name: fmt.Sprintf("%.0f s | %.0f s", collect, scrape), Refresh: collect, Read: scrape, Shake: .05, Window: 1,
		Assumed: 3600, Settle: collect + 2*scrape, MaxWait: 2*collect + 3*scrape,
	}
}

// While power alternates about as slowly as an exporter collects, its readings can be such that all
// changes are hidden between them, and repeat like a resonance. No other readings show that, so the
// stated error of spans of two collections and more always covers it.
func TestTheStatedErrorHoldsWhilePowerAlternatesBetweenCollections(t *testing.T) {
	const all = 16
	for _, scrape := range []float64{1, 5, 15, 30} {
		for _, early := range []float64{0, 6 * 30} { // also with the first readings
			spec := exporter(30, scrape)
			spec.Early = early
			inside, known := 0, 0
			for _, kind := range []string{"5s", "10s", "15s", "20s", "25s", "30s", "40s", "1m"} {
				here, of := 0, 0
				for seed := range uint64(all) {
					for _, list := range replay(&spec, kind, seed, 20, nothing, []float64{66, 120, 300}) {
						for _, o := range list {
							if !o.omitted() {
								of++
								if o.inside() {
									here++
								}
							}
						}
					}
				}
				assert.GreaterOrEqual(t, percent(here, of), 93., "%s, early %v, power changes every %s", spec.Name, early, kind)
				inside, known = inside+here, known+of
			}
			assert.GreaterOrEqual(t, percent(inside, known), 95., "%s, early %v", spec.Name, early)
			assert.Greater(t, known, all*8*3*20*8/10, "most spans have energy")
		}
	}
}

// TestGeneratedTableOfExporters simulates dcgm-exporter by its collection interval, behind the
// pipeline kubernetes/dcgm-exporter with the waits that docs/kubernetes.md recommends: power is a
// mean of a second, and the refresh period is not known beforehand.
func TestGeneratedTableOfExporters(t *testing.T) {
	var specs []instrumenttest.Spec
	for _, x := range [][2]float64{{30, 15}, {30, 5}, {15, 5}, {10, 5}, {5, 1}, {1, 1}} {
		specs = append(specs, exporter(x[0], x[1]))
	}
	text := "| collected every | scraped every | spans of 0.1 s | 1 s | 10 s | 60 s |\n|---|---|--:|--:|--:|--:|\n"
	tableOf(specs, []float64{.1, 1, 10, 60}, 2, 100, nothing, func(spec *instrumenttest.Spec, list []summary) {
		text += row(spec, list)
	})
	generate(t, "kubernetes.md", "errors", text)
}
