// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
)

// aloneReason is the reason why a rank's step is not compared with any other.
type aloneReason uint8

const (
	aloneNoJob aloneReason = iota
	aloneNoRank
	aloneNoTime
	aloneFewRanks
	aloneNoPeer
	aloneOutOfStep
	aloneShared
	aloneAbsent
	aloneReasons // number of reasons
)

// aloneTexts are the reasons in the metric and, with the remedy, in the log.
var aloneTexts = [aloneReasons]struct{ label, log string }{
	aloneNoJob: {"no_job", "the steps have no job ID in common (set gpu.job.id on the resource of all ranks: " +
		"otelgpu.job(), torchrun --rdzv-id, or OTEL_RESOURCE_ATTRIBUTES)"},
	aloneNoRank: {"no_rank", "the steps do not state their rank (set gpu.job.rank on the resource)"},
	aloneNoTime: {"no_time", "the steps have no index, no duration or no own time"},
	aloneFewRanks: {"few_ranks", "too few ranks report their steps within `stragglers::max_wait` " +
		"(send all ranks of a job to one Collector, record the same steps in all of them)"},
	aloneNoPeer: {"no_peer", "no other rank of the process groups that the steps use reports them " +
		"(send all ranks of a job to one Collector)"},
	aloneOutOfStep: {"out_of_step", "the ranks of a process group end their steps at different collectives " +
		"(call otelgpu.watch_collectives() at the same point in all ranks, number the steps alike)"},
	aloneShared: {"shared_job", "two processes report the same rank of one job at the same time " +
		"(give each run its own gpu.job.id, and each loop of a process its own name)"},
	aloneAbsent: {"absent_rank", "some ranks of the job do not report, and all others wait in each step: a rank that " +
		"does not report may be the late one (send the spans of all ranks)"},
}

var uncompared = func() (out [aloneReasons]metric.AddOption) {
	for why := range out {
		out[why] = dropped(aloneTexts[why].label)
	}
	return out
}()

// explain logs the first time why ranks are not compared. c.mu is held.
func (c *gpuMetrics) explain(s *counts) {
	for why, n := range s.uncompared {
		if n > 0 && !c.explained[why] {
			c.explained[why] = true
			text := aloneTexts[why].log
			if aloneReason(why) == aloneFewRanks && s.few[1] > 0 {
				text = fmt.Sprintf("%d of %d ranks exports; %s", s.few[0], s.few[1], text)
			}
			c.log.Warn("stragglers cannot be found: "+text+"; further steps are counted, not logged",
				zap.String("reason", aloneTexts[why].label), zap.Int64("steps", n))
		}
	}
}
