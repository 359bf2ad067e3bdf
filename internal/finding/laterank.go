// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// Late holds the facts of a late rank. Zero values are omitted.
type Late struct {
	Rank    int64
	Who     string        // the ranks, unless it is Rank: "rank 3 of TP group 0"
	Ranks   int64         // that were compared
	Job     string        // if several were recorded
	Loop    string        // likewise
	Hits    int64         // steps in which it was late
	Steps   int64         // that were compared
	By      time.Duration // by which it was late then, in the mean
	Section string        // that explains In of By
	In      time.Duration
	Did     string        // what it did: "it computes for 5ms longer than the others"
	Last    string        // collectives at which it arrives last
	Each    time.Duration // that each of the others waits
	Of      time.Duration // that Each is a share of
}

func (l *Late) subject() string { return cmp.Or(l.Who, fmt.Sprintf("rank %d", l.Rank)) }

// Sentence states that the rank is late, and by how much. Live telemetry, compared profiles and
// reports use no other.
func (l *Late) Sentence() string {
	text := l.subject()
	if l.Ranks > 0 {
		text += fmt.Sprintf(" of %d", l.Ranks)
	}
	if l.Job != "" {
		text += " of job " + l.Job
	}
	if strings.HasPrefix(l.Who, "ranks ") {
		text += " are late"
	} else {
		text += " is late"
	}
	if l.By == 0 {
		return text
	}
	by := "by " + Duration(l.By)
	switch {
	case l.Hits == 0:
		text += " " + by
	case l.Loop != "":
		text += fmt.Sprintf(" in %d of %d steps of %s, %s on average", l.Hits, max(l.Hits, l.Steps), l.Loop, by)
	default:
		text += fmt.Sprintf(" in %d of %d steps, %s on average", l.Hits, max(l.Hits, l.Steps), by)
	}
	if l.Section != "" {
		text += fmt.Sprintf(", %s of it in %s", Duration(min(l.In, l.By)), l.Section)
	}
	return text
}

// LateRank returns the finding that each of the other ranks of a job waits for one. All state late
// ranks by this function, so that they have the same subject, sentence, gain and share; the evidence
// states how each knows.
func LateRank(l *Late, threshold float64, sure Certainty) Finding {
	f := New(semconv.GPUFindingKindLateRank, sure)
	f.Subject, f.Gain, f.Threshold = l.subject(), l.Each, threshold
	if l.By == 0 && l.Last != "" {
		f.Chain = []string{f.Subject + " arrives last at " + l.Last}
	} else if f.Chain = []string{l.Sentence()}; l.Last != "" {
		f.Chain = append(f.Chain, "it arrives last at "+l.Last)
	}
	if l.Did != "" {
		f.Chain = append(f.Chain, l.Did)
	}
	if l.Each > 0 {
		f.Chain = append(f.Chain, fmt.Sprintf("each of the others waits %s for it", Duration(l.Each)))
	}
	if l.Of > 0 {
		f.Share = float64(l.Each) / float64(l.Of)
	}
	return f
}
