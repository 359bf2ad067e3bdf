// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"cmp"
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// Late holds the facts of a late rank. Zero values are omitted.
type Late struct {
	Rank int64
	Who  string        // the ranks, unless it is Rank: "ranks 3, 5"
	Did  string        // what it did: "computes for 5ms longer than the others"
	Last string        // collectives at which it arrives last
	Each time.Duration // that each of the others waits
	Of   time.Duration // that Each is a share of
}

// LateRank returns the finding that each of the other ranks of a job waits for one. Live telemetry,
// compared profiles and reports state late ranks by this function, so that they have the same
// subject, sentence, gain and share; the evidence states how each knows.
func LateRank(l *Late, threshold float64, sure Certainty) Finding {
	f := New(semconv.GPUFindingKindLateRank, sure)
	f.Subject, f.Gain, f.Threshold = cmp.Or(l.Who, fmt.Sprintf("rank %d", l.Rank)), l.Each, threshold
	switch {
	case l.Did != "" && l.Last != "":
		f.Chain = []string{f.Subject + " " + l.Did, "it arrives last at " + l.Last}
	case l.Last != "":
		f.Chain = []string{f.Subject + " arrives last at " + l.Last}
	default:
		f.Chain = []string{f.Subject + " " + cmp.Or(l.Did, "is late")}
	}
	if l.Each > 0 {
		f.Chain = append(f.Chain, fmt.Sprintf("each of the others waits %s for it", Duration(l.Each)))
	}
	if l.Of > 0 {
		f.Share = float64(l.Each) / float64(l.Of)
	}
	return f
}
