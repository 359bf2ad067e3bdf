// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// situation is a rule's input for a device whose window and computing time are windowLength.
type situation struct {
	*facts.Totals
	context *facts.Context
	report  *facts.Report
}

const windowLength = 1_000_000_000

// efficient is the rate of an operator without a finding.
var efficient = facts.Rate{PeakShare: 0.9, Bound: "memory"}

func findingsOf(set func(s situation)) []finding.Finding {
	s := situation{&facts.Totals{}, aContext(), &facts.Report{Window: windowLength}}
	s.report.Operators = []facts.Operator{{Name: "mm", Time: windowLength, Alone: windowLength, Rate: efficient}}
	s.Parts[timeline.Computing] = windowLength
	set(s)
	return Device(s.Totals, s.context, s.report)
}

// idleFor returns a situation in which the device was idle for n ns.
func idleFor(cause timeline.Cause) func(s situation, n int64) {
	return func(s situation, n int64) {
		s.Idle(timeline.Share{Claim: timeline.Claim{To: n, Class: timeline.Idle, Cause: cause, Name: 1, In: 2}})
	}
}

func copiesFor(memory string) func(s situation, n int64) {
	return func(s situation, n int64) {
		c := facts.Copy{Direction: timeline.HostToDevice, Memory: memory, Count: 1, Exposed: time.Duration(n)}
		s.report.Copies = []facts.Copy{c}
	}
}

func operator(make func(n int64) facts.Operator) func(s situation, n int64) {
	return func(s situation, n int64) { s.report.Operators = []facts.Operator{make(n)} }
}

// thresholdCases has a row for each rule: facts in which the rule compares n ns with its threshold.
var thresholdCases = map[string]func(s situation, n int64){
	semconv.GPUFindingKindAllocation: idleFor(timeline.CauseAllocation),
	semconv.GPUFindingKindAutotuning: func(s situation, n int64) {
		x := &facts.Trial{}
		x.Few.Calls, x.Many.Calls, x.Many.Time = facts.UsualCalls, 1, n
		s.Trials = map[uint32]*facts.Trial{1: x}
	},
	semconv.GPUFindingKindCheckpoint: func(s situation, n int64) {
		s.context.Name = func(uint32) string { return "trainer.py(80): save_checkpoint" }
		idleFor(timeline.CauseHost)(s, n)
	},
	semconv.GPUFindingKindCompilation: func(s situation, n int64) {
		s.context.Name = func(uint32) string { return "torch/_inductor/graph.py(1600): codegen" }
		idleFor(timeline.CauseHost)(s, n)
	},
	semconv.GPUFindingKindDataMovement: func(s situation, n int64) {
		s.Moved = map[facts.MoveKey]*facts.Moved{{Move: timeline.MovesType}: {Alone: time.Duration(n)}}
	},
	semconv.GPUFindingKindDependency: idleFor(timeline.CauseDependency),
	semconv.GPUFindingKindExpertImbalance: func(s situation, n int64) {
		s.Experts = facts.Experts{
			Count: 3, Sent: 300, Received: 600, Unequal: 300, Exposed: time.Duration(n + 1), Unhidden: 1, Rate: 1,
		}
		s.report.Collectives = []facts.Collective{{Name: "all_to_all of 1 MB", Count: 3, Waiting: time.Duration(n), Moving: 1}}
	},
	semconv.GPUFindingKindExposedCommunication: func(s situation, n int64) {
		s.report.Collectives = []facts.Collective{{Name: "all_reduce", Count: 1, Moving: time.Duration(n)}}
	},
	semconv.GPUFindingKindExposedCopies: copiesFor("pinned"),
	semconv.GPUFindingKindFusion: operator(func(n int64) facts.Operator { // one of three tensors is not read again
		return facts.Operator{Name: "add", Time: windowLength, Alone: windowLength, Handed: time.Duration(3 * n)}
	}),
	semconv.GPUFindingKindGraphCapture: idleFor(timeline.CauseCapture),
	semconv.GPUFindingKindHostWork:     idleFor(timeline.CauseHost),
	semconv.GPUFindingKindLateRank: func(s situation, n int64) {
		s.report.Collectives = []facts.Collective{{Name: "all_reduce", Count: 3, Waiting: time.Duration(n)}}
	},
	semconv.GPUFindingKindLaunchBound: idleFor(timeline.CauseDispatch),
	semconv.GPUFindingKindLoader:      idleFor(timeline.CauseLoader),
	semconv.GPUFindingKindLowEfficiency: operator(func(n int64) facts.Operator {
		return facts.Operator{
			Name: "mm", Time: time.Duration(n), Alone: time.Duration(n), Rate: facts.Rate{PeakShare: 1e-6, Bound: "memory"},
		}
	}),
	semconv.GPUFindingKindLowParallelism: operator(func(n int64) facts.Operator {
		return facts.Operator{Name: "mm", Time: windowLength, Narrow: time.Duration(n), Empty: float64(n)}
	}),
	semconv.GPUFindingKindMemorySpike: func(s situation, n int64) {
		s.context.Memory = facts.Memory{First: windowLength - n, Highest: windowLength}
	},
	semconv.GPUFindingKindNoLoad: idleFor(timeline.CauseNoLoad),
	semconv.GPUFindingKindNotJudged: operator(func(n int64) facts.Operator {
		return facts.Operator{Name: "mm", Time: windowLength, Alone: time.Duration(windowLength - n), Rate: efficient}
	}),
	semconv.GPUFindingKindNotRecorded:      idleFor(timeline.CauseNotRecorded),
	semconv.GPUFindingKindPageMigrations:   copiesFor(timeline.MemoryManaged),
	semconv.GPUFindingKindPageableCopies:   copiesFor("pageable"),
	semconv.GPUFindingKindProfilerOverhead: idleFor(timeline.CauseProfiler),
	semconv.GPUFindingKindSinglePrecision: func(s situation, n int64) {
		s.context.Peak = facts.PeakOf("NVIDIA H100 80GB HBM3")
		flops := s.context.Peak.FLOPs
		saved := 1 - flops.Of("fp32")/(reachable*flops.Of("tf32"))
		s.report.ByKernel = []facts.Kernel{{Name: "sgemm_128x128", Alone: time.Duration(float64(n) / saved)}}
	},
	semconv.GPUFindingKindSlowRuntimeCalls: idleFor(timeline.CauseCall),
	semconv.GPUFindingKindSynchronization:  idleFor(timeline.CauseSynchronization),
	semconv.GPUFindingKindTailWave: operator(func(n int64) facts.Operator {
		return facts.Operator{
			Name: "mm", Time: windowLength, Alone: windowLength, Tailed: windowLength, Tail: float64(n),
			Rate: facts.Rate{PeakShare: 0.6, Bound: "compute"},
		}
	}),
	semconv.GPUFindingKindThrottle: func(s situation, n int64) {
		s.Slowdown = &facts.Slowdown{Part: float64(n) / windowLength, Factor: 1.5, Kinds: 2, All: 2}
	},
	semconv.GPUFindingKindUnevenSteps: func(s situation, n int64) { // one of ten steps is longer; 10 ms is the median
		const ms = time.Millisecond
		part := float64(n) / windowLength
		s.report.ByStep = []facts.Step{{Name: "step#0", Time: time.Second}} // start-up
		for range 9 {
			s.report.ByStep = append(s.report.ByStep, facts.Step{Name: "step#1", Time: 10 * ms})
		}
		excess := part / (1 - part) * float64(100*ms)
		s.report.ByStep = append(s.report.ByStep, facts.Step{Name: "step#10", Time: 10*ms + time.Duration(excess)})
	},
	semconv.GPUFindingKindUnexplainedIdle: idleFor(timeline.CauseUnknown),
	semconv.GPUFindingKindUnfusedAttention: operator(func(n int64) facts.Operator {
		t := time.Duration(n)
		return facts.Operator{Name: "softmax", Time: t, Alone: t, Attention: t}
	}),
	semconv.GPUFindingKindWaitingForRank: idleFor(timeline.CausePeer),
	semconv.GPUFindingKindWarmUp:         idleFor(timeline.CauseWarmUp),
}

func TestEveryRuleHasItsThreshold(t *testing.T) {
	for _, kind := range semconv.FindingKinds() {
		if !slices.Contains(kind.ReportedBy, "profile") { // their packages have a table, too
			continue
		}
		switch kind.Kind {
		case semconv.GPUFindingKindNoDevice: // of profiles without device facts; it has no threshold
			continue
		case semconv.GPUFindingKindHealthy:
			assert.Equal(t, kind.Kind, findingsOf(func(situation) {})[0].Kind)
			continue
		}
		set := thresholdCases[kind.Kind]
		require.NotNil(t, set, "add a row for %s", kind.Kind)
		with := func(part float64) []finding.Finding {
			return findingsOf(func(s situation) { set(s, int64(part*kind.Threshold*windowLength)) })
		}
		is := func(f finding.Finding) bool { return f.Kind == kind.Kind }
		assert.False(t, slices.ContainsFunc(with(0.98), is), "%s below its threshold", kind.Kind)
		list := with(1.02)
		i := slices.IndexFunc(list, is)
		if assert.GreaterOrEqual(t, i, 0, "%s above its threshold", kind.Kind) {
			assert.GreaterOrEqual(t, list[i].Share, list[i].Threshold, kind.Kind)
			assert.NotEmpty(t, list[i].Chain, kind.Kind)
		}
	}
}
