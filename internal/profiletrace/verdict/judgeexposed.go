// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// copies claims exposed copying: migrations, pageable copies and the others, each once. It returns the part of
// computing time that is claimed, too: kernels that touch pages which are elsewhere wait for them.
func (j *judge) copies(d *Device, r *Report) (claimed float64) {
	for _, kind := range [...]string{
		semconv.GPUFindingKindPageMigrations, semconv.GPUFindingKindPageableCopies, semconv.GPUFindingKindExposedCopies,
	} {
		var exposed, stalled time.Duration
		var text []string
		var in account
		for _, c := range r.Copies {
			of := d.copy[copyKey{c.Direction, c.Memory}]
			if copyKind(c) != kind || of.Exposed+of.stalled == 0 {
				continue
			}
			exposed += of.Exposed
			stalled += of.stalled
			text = append(text, j.copyText(c))
			for _, s := range of.in.spent {
				in.put(s)
			}
		}
		gain := exposed + stalled
		if gain == 0 {
			continue
		}
		asked := in.places(j.f, CauseUnknown)
		v := finding.Finding{
			Kind: kind, Gain: gain, Where: asked, Certainty: finding.High,
			Evidence: strings.Join(text, ", "),
		}
		if len(asked) > 0 {
			v.Evidence += "; asked for in " + Names(asked)
		}
		wait := fmt.Sprintf("%s computed nothing for %s", j.device0(), finding.Duration(exposed))
		switch kind {
		case semconv.GPUFindingKindPageMigrations:
			if stalled > 0 {
				wait += fmt.Sprintf(", and its kernels waited for pages for up to %s", finding.Duration(stalled))
			}
			v.Chain, v.Remedy = []string{"pages of managed memory move when they are touched", wait},
				"cudaMemPrefetchAsync or explicit copies, cudaMemAdvise"
			if c := d.parts[Computing]; stalled > 0 && float64(gain) >= thresholdGain*float64(j.length) {
				claimed = float64(stalled) / float64(c)
				v.Certainty = finding.Medium
			}
		case semconv.GPUFindingKindPageableCopies:
			v.Chain = []string{"copies from or to pageable memory go through a staging buffer", "nothing runs beside them", wait}
			v.Remedy = "pinned memory (pin_memory=True) with non_blocking=True, on a stream of its own"
		case semconv.GPUFindingKindExposedCopies:
			v.Chain, v.Remedy = []string{"copies are in the critical path", "nothing runs beside them", wait},
				"copy ahead of time on a stream of its own, keep data on the device, copy less"
		}
		j.add(v)
	}
	return claimed
}

func copyKind(c Copy) string {
	switch c.Memory {
	case MemoryManaged:
		return semconv.GPUFindingKindPageMigrations
	case "pageable":
		return semconv.GPUFindingKindPageableCopies
	}
	return semconv.GPUFindingKindExposedCopies
}

// MemoryManaged is the kind of host memory of a page migration.
const MemoryManaged = "managed"

// copyText says how fast copies were, against the link where it is known.
func (j *judge) copyText(c Copy) string {
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
	s += fmt.Sprintf(" of %s at %.3g GB/s", finding.Size(c.Bytes), rate/1e9)
	var link float64
	switch c.Direction {
	case hostToDevice, "device_to_host":
		link = j.f.Peak.Host.Rate()
	case "peer_to_peer":
		link = j.f.Peak.Interconnect
	case "device_to_device":
		link = j.f.Peak.MemoryBandwidth / 2 // each byte is read and written
	}
	if link > 0 {
		s += fmt.Sprintf(" (%.3g %% of %.3g GB/s)", 100*rate/link, link/1e9)
		if host := j.f.Peak.Host.Rate(); c.Direction == "peer_to_peer" && rate < host && 2*host < link {
			s += ", no faster than over PCIe: is the link between the devices used (nvidia-smi topo -m)?"
		}
	}
	return s
}

// compareRanks is how remedies begin that need a job's other ranks. It holds beside them as well as without them: a
// file is judged before it is known which others are of its job.
const compareRanks = "compare the ranks (their profiles, converted together, say which one is late)"

// largeMessage is the size from which on latency says little of a collective's rate, slowLink the part of the rate of
// the host's bus below which something is wrong with a link: a network of 25 Gbit/s is at a tenth.
const (
	largeMessage = 1 << 20
	slowLink     = 0.1
	smallMessage = 1 << 18 // below which latency is most of what a collective takes
)

// collectives claims exposed communication: waiting and moving.
func (j *judge) collectives(r *Report) {
	var waiting, moving, slow, small time.Duration
	var waits, moves []finding.Place
	for _, c := range r.Collectives {
		waiting += c.Waiting
		moving += c.Moving
		waits = append(waits, finding.Place{Name: c.Name, Time: c.Waiting, Count: c.Count})
		moved := c.Name
		if c.best > 0 {
			moved += fmt.Sprintf(" at %.3g GB/s at best", c.best/1e9)
			if c.bytes >= largeMessage && c.best < slowLink*j.f.Peak.Host.Rate() {
				slow += c.Moving
			} else if c.bytes < smallMessage {
				small += c.Moving
			}
		}
		moves = append(moves, finding.Place{Name: moved, Time: c.Moving, Count: c.Count})
	}
	waits, moves = Longest(waits), Longest(moves)
	mixed, what, remedy := "", "move bytes",
		"overlap with computation (smaller buckets, prefetching), fewer bytes, larger batches"
	if slices.ContainsFunc(r.Collectives, func(c Collective) bool { return c.mixed && c.Moving > 0 }) {
		what, remedy = "move bytes or wait for a late rank",
			compareRanks+", which tells waiting; "+remedy
		mixed = "; how much of that is waiting for a late rank is not known, for there are too few of a kind or their " +
			"sizes are not recorded"
	}
	if 2*small > moving {
		remedy = fmt.Sprintf("fewer and larger messages (one buffer for many tensors, larger buckets): most are below %s, "+
			"of which latency is most", finding.Size(smallMessage))
	}
	if 2*slow > moving {
		remedy = fmt.Sprintf("look at the link: large messages are below %.0f %% of the rate of the host's bus "+
			"(NCCL_DEBUG=INFO says which way they take, nvidia-smi topo -m what there is); ", 100*slowLink) + remedy
	}
	if waiting > 0 {
		j.add(finding.Finding{
			Kind: semconv.GPUFindingKindLateRank, Gain: waiting, Where: waits, Certainty: finding.Low,
			Chain: []string{
				"another rank came late to collectives", "this one waited in them with nothing to compute",
				fmt.Sprintf("%s computed nothing for %s", j.device0(), finding.Duration(waiting)),
			},
			Evidence: "longer than the shortest of their kind: " + Names(waits),
			Remedy:   compareRanks + ": the late rank is the cause",
		})
	}
	if moving > 0 {
		j.add(finding.Finding{
			Kind: semconv.GPUFindingKindExposedCommunication, Gain: moving, Where: moves, Certainty: finding.Medium,
			Chain: []string{
				"collectives " + what + " while nothing computes",
				fmt.Sprintf("%s computed nothing for %s", j.device0(), finding.Duration(moving)),
			},
			Evidence: Names(moves) + fmt.Sprintf("; %.3g %% of all communication is hidden",
				100*float64(r.Parts.CommHidden)/float64(max(1, r.Parts.CommHidden+r.Parts.CommExposed))) + mixed,
			Remedy: remedy,
		})
	}
}
