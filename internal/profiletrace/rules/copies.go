// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// copies claims exposed copying: migrations, pageable copies and the others, each once. It returns
// the part of computing time that is claimed, too: kernels that touch pages which are elsewhere
// wait for them.
func (j *judge) copies(d *facts.Totals, r *facts.Report) (claimed float64) {
	for _, kind := range [...]string{
		semconv.GPUFindingKindPageMigrations, semconv.GPUFindingKindPageableCopies, semconv.GPUFindingKindExposedCopies,
	} {
		var exposed, stalled time.Duration
		var text []string
		var in facts.Spending
		for _, c := range r.Copies {
			if copyKind(c) != kind || c.Exposed+c.Stalled == 0 {
				continue
			}
			exposed += c.Exposed
			stalled += c.Stalled
			text = append(text, j.copyText(c))
			for _, s := range c.In.Spent {
				in.Put(s)
			}
		}
		gain := exposed + stalled
		if gain == 0 {
			continue
		}
		asked := in.Locations(j.f, timeline.CauseUnknown)
		v := finding.Finding{
			Kind: kind, Gain: gain, Where: asked, Certainty: finding.High,
			Evidence: strings.Join(text, ", "),
		}
		if len(asked) > 0 {
			v.Evidence += "; asked for in " + finding.Names(asked)
		}
		wait := fmt.Sprintf("%s computed nothing for %s", j.device0(), finding.Duration(exposed))
		switch kind {
		case semconv.GPUFindingKindPageMigrations:
			if stalled > 0 {
				wait += fmt.Sprintf(", and its kernels waited for pages for up to %s", finding.Duration(stalled))
			}
			v.Chain = []string{"pages of managed memory move when they are touched", wait}
			if c := d.Parts[timeline.Computing]; stalled > 0 && float64(gain) >= thresholdGain*float64(j.length) {
				claimed = float64(stalled) / float64(c)
				v.Certainty = finding.Medium
			}
		case semconv.GPUFindingKindPageableCopies:
			v.Chain = []string{
				"copies from or to pageable memory go through a staging buffer", "nothing runs at the same time", wait,
			}
		case semconv.GPUFindingKindExposedCopies:
			v.Chain = []string{"copies are in the critical path", "nothing runs at the same time", wait}
		}
		j.add(v)
	}
	return claimed
}

func copyKind(c facts.Copy) string {
	switch c.Memory {
	case timeline.MemoryManaged:
		return semconv.GPUFindingKindPageMigrations
	case "pageable":
		return semconv.GPUFindingKindPageableCopies
	}
	return semconv.GPUFindingKindExposedCopies
}

// copyText reports how fast copies were, against the link where it is known.
func (j *judge) copyText(c facts.Copy) string {
	s := finding.Count(c.Count, "copy", "copies")
	if c.Direction != "" {
		s += " " + strings.ReplaceAll(c.Direction, "_", " ")
	}
	if c.Memory == "" && c.Direction == "" {
		s = finding.Count(c.Count, "memset", "memsets")
	}
	if c.Bytes <= 0 || c.Time <= 0 {
		return s
	}
	rate := float64(c.Bytes) / c.Time.Seconds()
	s += fmt.Sprintf(" of %s at %s", finding.Size(c.Bytes), finding.Rate(rate, "B/s"))
	var link float64
	switch c.Direction {
	case timeline.HostToDevice, "device_to_host":
		link = j.f.Peak.Host.Rate()
	case "peer_to_peer":
		link = j.f.Peak.Interconnect
	case "device_to_device":
		link = j.f.Peak.MemoryBandwidth / 2 // each byte is read and written
	}
	if link > 0 {
		s += fmt.Sprintf(" (%.3g %% of %s)", 100*rate/link, finding.Rate(link, "B/s"))
		if host := j.f.Peak.Host.Rate(); c.Direction == "peer_to_peer" && rate < host && 2*host < link {
			s += ", no faster than over PCIe: is the link between the devices used (nvidia-smi topo -m)?"
		}
	}
	return s
}
