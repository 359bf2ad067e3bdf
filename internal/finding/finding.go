// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package finding defines findings: notable facts of a profile, of a process or on the live page.
//
// Kinds, titles, thresholds and usual remedies are in semconv/registry/finding.yaml, from which
// package semconv and docs/finding-kinds.md are generated.
package finding

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// Certainty is how a finding was made.
type Certainty string

// Certainties.
const (
	High   Certainty = "high"   // measured: the record names the cause
	Medium Certainty = "medium" // the record shows that it was so, and the cause is inferred
	Low    Certainty = "low"    // inferred from a comparison or a rule of thumb
)

// Lower returns the next lower certainty.
func (c Certainty) Lower() Certainty {
	if c == High {
		return Medium
	}
	return Low
}

// Finding is a cause that costs time, with its effect.
type Finding struct {
	Kind    string     `json:"kind"`
	Subject string     `json:"subject"` // "GPU 0", or the name of a step
	Chain   []string   `json:"chain"`   // cause first, the effect on the device last
	Where   []Location `json:"where,omitempty"`
	// of wall time, at most; 0: not known. No two findings of a subject count the same time
	Gain time.Duration `json:"gain_ns"`
	// by which findings are sorted; see docs/findings.md
	Weight time.Duration `json:"weight_ns,omitempty"`
	// the value compared with the threshold; a share of the window or step, unless Evidence states
	// otherwise
	Share     float64   `json:"share"`
	Threshold float64   `json:"threshold"`
	Evidence  string    `json:"evidence"`
	Certainty Certainty `json:"certainty"`
	Remedy    string    `json:"remedy,omitempty"`
	Outside   bool      `json:"outside_window,omitempty"` // Gain is time before or after the device's window
	// Of live telemetry: a trace to open, and the first and the last occurrence in unix ms.
	Trace string  `json:"trace,omitempty"`
	From  float64 `json:"from,omitempty"`
	To    float64 `json:"to,omitempty"`
	*Hang
}

// Hang is the operation of several ranks that does not end, of a hung_rank.
type Hang struct {
	Rank     *int   `json:"rank,omitempty"`  // nil: none or several are waited for
	Ranks    []int  `json:"ranks,omitempty"` // that are waited for, if there are several
	Group    string `json:"group"`
	Sequence int64  `json:"sequence"`
	Cause    string `json:"cause"`
}

// New returns a finding of a kind with the threshold and the remedy that the registry has for it.
func New(kind string, sure Certainty) Finding {
	k, _ := semconv.LookupFindingKind(kind)
	return Finding{Kind: kind, Certainty: sure, Threshold: k.Threshold, Remedy: k.Remedy}
}

// String returns one line: the chain, what would be gained, evidence, threshold and certainty.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.Kind)
	if f.Subject != "" {
		b.WriteString(", " + f.Subject)
	}
	b.WriteString(": " + strings.Join(f.Chain, " -> "))
	if f.Gain > 0 {
		fmt.Fprintf(&b, "; saves at most %s (%.3g %%)", Duration(f.Gain), 100*f.Share)
	}
	if f.Evidence != "" {
		fmt.Fprintf(&b, "; %s", f.Evidence)
	}
	if f.Kind != semconv.GPUFindingKindHealthy && f.Threshold > 0 {
		fmt.Fprintf(&b, " (threshold %.3g %%, certainty %s)", 100*f.Threshold, f.Certainty)
	}
	if f.Remedy != "" {
		fmt.Fprintf(&b, "; try: %s", f.Remedy)
	}
	if f.Trace != "" {
		fmt.Fprintf(&b, "; trace %s", f.Trace)
	}
	return b.String()
}

// Fit returns the longest form of the line that fits: without evidence and threshold, without the
// middle of the chain, without the remedy. The last form need not fit.
func (f Finding) Fit(fits func(string) bool) string {
	text := f.String()
	for _, shorten := range []func(){
		func() { f.Evidence, f.Threshold = fmt.Sprintf("certainty %s", f.Certainty), 0 },
		func() { f.Chain = slices.Delete(slices.Clone(f.Chain), min(1, len(f.Chain)), max(1, len(f.Chain)-1)) },
		func() { f.Remedy = "" },
	} {
		if fits(text) {
			break
		}
		shorten()
		text = f.String()
	}
	return text
}

// Duration formats a time in ns for people.
func Duration[N ~int64 | ~float64](ns N) string {
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

// Size formats a number of bytes that were moved, in powers of 1,000, as rates of links and memory
// are given.
func Size(bytes int64) string { return Rate(float64(bytes), "B") }

// Held formats a number of bytes of memory, in powers of 1,024, as nvidia-smi and PyTorch give it.
func Held(bytes int64) string {
	if bytes < 1024 {
		return fmt.Sprint(bytes) + " B"
	}
	return scaled(float64(bytes), 1024, "B", []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"})
}

// Rate formats a rate in a unit, as B/s or FLOP/s.
func Rate(v float64, unit string) string {
	return scaled(v, 1000, unit, []string{"", "k", "M", "G", "T", "P", "E"})
}

func scaled(v, base float64, unit string, prefixes []string) string {
	i := 0
	for ; v >= 999.5 && i < len(prefixes)-1; i++ {
		v /= base
	}
	return fmt.Sprintf("%.3g %s%s", v, prefixes[i], unit)
}

// Count formats a number with its noun.
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n) + " " + many
}
