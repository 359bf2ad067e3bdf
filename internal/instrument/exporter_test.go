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
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const seeds, spans = 3, 50
	for _, x := range []struct {
		collect, scrape float64
		early           bool // also with the first readings
		lack            without
	}{
		{30, 1, false, nothing},
		{30, 5, false, nothing},
		{30, 5, true, nothing},
		{30, 30, false, nothing},
		{30, 5, false, noPower},
		{15, 5, false, noPower},
		{10, 1, false, noPower},
	} {
		spec := exporter(x.collect, x.scrape)
		if x.early {
			spec.Early = 6 * x.collect
		}
		inside, known := 0, 0
		for _, kind := range []string{"5s", "10s", "15s", "20s", "25s", "30s", "40s", "1m"} {
			here, of := 0, 0
			for seed := range uint64(seeds) {
				for _, list := range replay(&spec, kind, seed, spans, x.lack, []float64{2.2 * x.collect, 4 * x.collect}) {
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
			assert.GreaterOrEqual(t, percent(here, of), 92., "%+v, power changes every %s", x, kind)
			inside, known = inside+here, known+of
		}
		assert.GreaterOrEqual(t, percent(inside, known), 95., "%+v", x)
		assert.Greater(t, known, seeds*8*2*spans*8/10, "most spans have energy, %+v", x)
	}
}

// TestGeneratedTableOfExporters simulates dcgm-exporter by its collection interval, behind the
// pipeline kubernetes/dcgm-exporter with the waits that docs/kubernetes.md recommends: power is a
// mean of a second, and the refresh period is not known beforehand.
func TestGeneratedTableOfExporters(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
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
