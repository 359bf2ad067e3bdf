// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// notRecorded reports time in which launched work without a record may have run. It is no idle
// time, so no other finding claims it.
func (j *judge) notRecorded() {
	n := j.account.Idles[timeline.CauseNotRecorded]
	if n == 0 || j.length <= 0 {
		return
	}
	v := finding.Finding{
		Kind: semconv.GPUFindingKindNotRecorded, Certainty: finding.High, Weight: time.Duration(n),
		Chain: []string{
			"the host waited for work that has no record",
			fmt.Sprintf("whether %s worked or was idle is not known for %s", j.device0(), finding.Duration(n)),
		},
		Evidence: fmt.Sprintf("each time, a call waited for more than %s after the end of all recorded work",
			finding.Duration(timeline.UnrecordedWait)),
	}
	if j.f.Lost > 0 {
		v.Chain[0] = fmt.Sprintf("%d of %s of kernels and graphs have no recorded work", j.f.Lost,
			finding.Count(j.f.Launches, "launch", "launches"))
		v.Evidence = "from such a launch until a call has waited for the device, or later work of the same thread starts"
	}
	j.note(v, float64(n)/float64(j.length), semconv.FindingNotRecordedThreshold)
}

// doubt lowers the certainty of what is concluded from missing work, if the file lacks records.
func (j *judge) doubt() {
	lacks := float64(j.account.Idles[timeline.CauseNotRecorded]) >= semconv.FindingNotRecordedThreshold*float64(j.length)
	if !lacks && j.f.Incomplete == "" {
		return
	}
	for i := range j.list {
		v := &j.list[i]
		if v.Kind == semconv.GPUFindingKindNotRecorded || v.Kind == semconv.GPUFindingKindNotJudged {
			continue
		}
		if v.Certainty = v.Certainty.Lower(); j.f.Incomplete != "" {
			v.Evidence = strings.TrimPrefix(v.Evidence+"; the file lacks records: "+j.f.Incomplete, "; ")
		}
	}
}
