// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"strings"
	"time"
)

// Kinds of verdicts: values of gpu.verdict.kind.
const (
	KindLoader          = "loader"                // the device waits for data
	KindLaunchBound     = "launch_bound"          // the host launches slower than the device works
	KindHost            = "host_work"             // the host does something else before it launches
	KindSlowCalls       = "slow_runtime_calls"    // start-up, module loading, first launches
	KindAllocation      = "allocation"            // memory is allocated or freed on the way
	KindSynchronization = "synchronization"       // the host waits for the device and has nothing queued then
	KindPeer            = "waiting_for_rank"      // the host waits for another rank
	KindDependency      = "dependency"            // launched work waits for something
	KindUnknown         = "unexplained_idle"      // the file does not say why the device was idle
	KindPageable        = "pageable_copies"       // exposed copies from or to memory that is not pinned
	KindMigration       = "page_migrations"       // exposed migrations of managed memory
	KindCopies          = "exposed_copies"        // other copies that nothing hides
	KindLateRank        = "late_rank"             // exposed collectives that waited for a rank
	KindComm            = "exposed_communication" // exposed collectives that moved bytes
	KindEfficiency      = "low_efficiency"        // an operator far below the peak of the device
	KindPrecision       = "single_precision"      // products without the engines that the device has for them
	KindParallelism     = "low_parallelism"       // kernels with fewer blocks than the device has multiprocessors
	KindThrottle        = "throttle"              // the same kernels took longer in a part of the window
	KindProfiler        = "profiler_overhead"     // the profiler itself holds the host up
	KindMoves           = "data_movement"         // kernels that move bytes on the device and compute nothing
	KindAttention       = "unfused_attention"     // attention in parts, which writes and reads its scores
	KindFusion          = "fusion"                // elementwise kernels that write what the next one reads
	KindTrials          = "autotuning"            // the first step tries out kernels
	KindNoLoad          = "no_load"               // the program waits for work from outside
	KindCapture         = "graph_capture"         // the host captures graphs
	KindWarmUp          = "warm_up"               // the program had not begun to replay graphs yet
	KindNoDevice        = "no_device"             // the profile has no activity of a device
	KindOpaque          = "opaque_regions"        // kernels of which the file does not show the operators
	KindMemory          = "memory_spike"          // allocated memory grows much
	KindHealthy         = "healthy"               // nothing to gain above the threshold
)

// Certainty says how a verdict was found.
type Certainty string

// Certainties.
const (
	High   Certainty = "high"   // measured: the record names the cause
	Medium Certainty = "medium" // the record shows that it was so, and the cause is inferred
	Low    Certainty = "low"    // inferred from a comparison or a rule of thumb
)

// Verdict is one thing that costs time, from its cause to its effect.
type Verdict struct {
	Kind    string   `json:"kind"`
	Subject string   `json:"subject"` // "GPU 0", or the name of a step
	Chain   []string `json:"chain"`   // cause first, the effect on the device last
	Where   []Place  `json:"where,omitempty"`
	// of wall time, at most; 0: not known. No two verdicts of a subject count the same time
	Gain time.Duration `json:"gain_ns"`
	// by which verdicts are sorted; see docs/verdicts.md
	Weight time.Duration `json:"weight_ns,omitempty"`
	// what was held against the threshold; part of the window or step, unless Evidence says otherwise
	Share     float64   `json:"share"`
	Threshold float64   `json:"threshold"`
	Evidence  string    `json:"evidence"`
	Certainty Certainty `json:"certainty"`
	Remedy    string    `json:"remedy,omitempty"`
	Outside   bool      `json:"outside_window,omitempty"` // Gain is of time before or after the device's window
}

// Place is where time was spent.
type Place struct {
	Name  string        `json:"name"`         // of a range, call, operator or kernel
	In    string        `json:"in,omitempty"` // range around it
	Time  time.Duration `json:"time_ns"`
	Count int64         `json:"count,omitempty"`
}

// String names the place with its time.
func (p Place) String() string {
	s := p.Name
	if p.In != "" {
		s += " in " + p.In
	}
	return s + " (" + Span(p.Time) + ")"
}

// String is one line: the chain, what would be gained, evidence, threshold and certainty.
func (v Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: %s", v.Kind, v.Subject, strings.Join(v.Chain, " -> "))
	if v.Gain > 0 {
		fmt.Fprintf(&b, "; up to %s (%.3g %%) to gain", Span(v.Gain), 100*v.Share)
	}
	if v.Evidence != "" {
		fmt.Fprintf(&b, "; %s", v.Evidence)
	}
	if v.Kind != KindHealthy {
		fmt.Fprintf(&b, " (threshold %.3g %%, certainty %s)", 100*v.Threshold, v.Certainty)
	}
	if v.Remedy != "" {
		fmt.Fprintf(&b, "; try: %s", v.Remedy)
	}
	return b.String()
}

// Span is a time in ns for people.
func Span[N ~int64 | ~float64](ns N) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	default:
		d = d.Round(10 * time.Nanosecond)
	}
	return d.String()
}

// Size is a number of bytes that were moved, in powers of 1,000, as rates of links and memory are given.
func Size(bytes int64) string { return bytesIn(bytes, 1000, "kB", "MB", "GB", "TB", "PB", "EB") }

// Held is a number of bytes of memory, in powers of 1,024, as nvidia-smi and PyTorch give it.
func Held(bytes int64) string { return bytesIn(bytes, 1024, "KiB", "MiB", "GiB", "TiB", "PiB", "EiB") }

func bytesIn(bytes int64, base float64, units ...string) string {
	if float64(bytes) < base {
		return fmt.Sprint(bytes) + " B"
	}
	v, unit := float64(bytes)/base, 0
	for ; v >= 999.5 && unit < len(units)-1; unit++ {
		v /= base
	}
	return fmt.Sprintf("%.3g %s", v, units[unit])
}

// Count is a number with its noun.
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n) + " " + many
}
