// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// trials are operators of which some calls launch kernels of many names, and most do not: a library tries out which
// kernel is the fastest. The zero value is empty.
type trials map[uint32]*trial

// trial is what the calls of one operator did: those with few names of kernels, and those with many.
type trial struct {
	now  opCall
	few  called
	many called
}

// called sums up calls.
type called struct {
	calls, kernels, time int64
	idle                 account // before their kernels
}

// opCall is a call whose kernels are being counted.
type opCall struct {
	at            int64 // its start
	kernels, time int64
	names         []uint32 // different ones, at most manyNames
	idle          []share
}

const (
	manyNames   = 5  // of kernels in one call
	usualCalls  = 3  // times as many calls must have few
	maxOfTrial  = 64 // idle times that are kept of a call; what is more stays with its cause
	maxSearched = 1 << 10
)

// launched counts a kernel.
func (t trials) launched(a *Activity) {
	if x := t.of(a); x != nil {
		c := &x.now
		c.kernels++
		c.time += a.End - a.Start
		if len(c.names) < manyNames && !slices.Contains(c.names, a.Name) {
			c.names = append(c.names, a.Name)
		}
	}
}

// idle takes idle time that ended with a kernel.
func (t trials) idle(a *Activity, s share) {
	if x := t.of(a); x != nil && len(x.now.idle) < maxOfTrial {
		x.now.idle = append(x.now.idle, s)
	}
}

// of is the trial of the operator that launched the activity, with its call begun.
func (t trials) of(a *Activity) *trial {
	if a.Inner == 0 || a.Class != Computing {
		return nil
	}
	x := t[a.Inner]
	if x == nil {
		if len(t) >= maxSearched {
			return nil
		}
		x = &trial{now: opCall{at: a.InnerStart}}
		t[a.Inner] = x
	}
	if x.now.at != a.InnerStart {
		x.end()
		x.now.at = a.InnerStart
	}
	return x
}

// end sums up the call.
func (t *trial) end() {
	c := &t.now
	to := &t.few
	if len(c.names) >= manyNames {
		to = &t.many
		for _, s := range c.idle {
			if s.Cause != CauseLoader && s.Cause != CauseProfiler && s.Cause != CausePeer {
				to.idle.idle(s)
			}
		}
	}
	to.calls++
	to.kernels += c.kernels
	to.time += c.time
	*c = opCall{names: c.names[:0], idle: c.idle[:0]}
}

// trials judges kernels that were tried out. It takes their idle time off the account and returns the part of computing
// time that its finding claims.
func (j *judge) trials(d *Device) (claimed float64) {
	var computing, idle int64
	var where []finding.Place
	var list []*trial
	var most int64
	var text string
	for _, op := range slices.Sorted(maps.Keys(d.trials)) {
		x := d.trials[op]
		x.end()
		if x.many.calls == 0 || x.few.calls < usualCalls*x.many.calls {
			continue
		}
		usual := x.few.time * x.many.calls / x.few.calls
		more := max(0, x.many.time-usual)
		of := x.many.idle.idleTime()
		computing, idle, list = computing+more, idle+of, append(list, x)
		where = append(where, finding.Place{Name: j.f.Name(op), Time: time.Duration(more + of), Count: x.many.kernels})
		if more+of > most {
			most = more + of
			text = fmt.Sprintf("%d of %d calls of %s launch %.3g kernels of different names each, the others %.3g",
				x.many.calls, x.many.calls+x.few.calls, clip(j.f.Name(op)),
				float64(x.many.kernels)/float64(x.many.calls), float64(x.few.kernels)/float64(x.few.calls))
		}
	}
	if float64(computing+idle) < thresholdGain*float64(j.length) {
		return 0
	}
	for _, x := range list {
		for _, s := range x.many.idle.spent {
			of := j.account.place(s.at)
			of.time -= s.time
			of.count -= s.count
		}
		for c, n := range x.many.idle.idles {
			j.account.idles[c] -= n
		}
	}
	where = Longest(where)
	j.add(finding.Finding{
		Kind: semconv.GPUFindingKindAutotuning, Gain: time.Duration(computing + idle), Where: where,
		Certainty: finding.Medium,
		Chain: []string{
			"kernels are tried out (autotuning, as of cudnn.benchmark)", text,
			fmt.Sprintf("%s computed %s more in them and waited %s for calls and launches between", j.device0(),
				finding.Duration(computing), finding.Duration(idle)),
		},
		Evidence: "in " + Names(where),
		Remedy: "once for each shape: leave the first steps out of what is measured; where shapes change, turn " +
			"benchmarking off",
	})
	return float64(computing) / float64(max(1, d.kernelTime))
}

// link is an elementwise kernel that another one may follow.
type link struct {
	op       *operator
	name     uint32 // of the kernel
	run      int    // how many of that kernel of that operator came right before
	launched uint64
	shape    uint32
	duration time.Duration
}

// longestChain is how often one kernel of one operator follows itself over the same elements: x times a times b.
const longestChain = 1

// chain takes note of two elementwise kernels in a row over as many elements: the first writes what the second reads.
func (d *Device) chain(a *Activity, op *operator) {
	before := d.chains[a.Stream]
	if !a.Maps || a.length() < shortKernel {
		if before.op != nil {
			delete(d.chains, a.Stream)
		}
		return
	}
	now := link{op, a.Name, 0, a.Launched, a.Shape, a.length()}
	if before.op == op && before.name == a.Name {
		now.run = before.run + 1
	}
	// Many of one kernel in a row go over as many tensors, as of an optimizer, and none reads what the one before wrote.
	if before.op != nil && now.run <= longestChain && (now.launched != 0 && now.launched == before.launched ||
		now.shape != 0 && now.shape == before.shape) {
		before.op.handed += before.duration
		op.handed += now.duration
		op.links++
	}
	if len(d.chains) < maxClasses {
		d.chains[a.Stream] = now
	}
}

// fusion judges elementwise kernels in a row, without operators that have a finding of low efficiency: what one writes
// and the next reads would stay in registers. Each of the tensors of an operator takes the same part of its time.
func (j *judge) fusion(r *Report, claimed map[string]bool, needed float64) {
	var gain float64
	var links int64
	var where []finding.Place
	known := true
	for _, o := range r.Operators {
		if o.handed == 0 || claimed[o.Name] || o.Time == 0 {
			continue
		}
		tensors := int64(3) // most are of two inputs
		if n := int64(strings.Count(o.Shapes, "[")); n > 0 {
			tensors = n + 1
		} else {
			known = false
		}
		part := min(1, float64(o.handed)/float64(tensors)/float64(o.Time)) * needed * float64(o.Alone)
		gain += part
		links += o.links
		where = append(where, finding.Place{Name: o.withShapes(), Time: time.Duration(part), Count: o.Kernels})
	}
	if gain < thresholdGain*float64(j.length) {
		return
	}
	where = Longest(where)
	v := finding.Finding{
		Kind: semconv.GPUFindingKindFusion, Gain: time.Duration(gain), Where: where,
		Certainty: finding.Medium,
		Chain: []string{
			"elementwise kernels in a row write and read again what one kernel would keep in registers",
			fmt.Sprintf("%s moved bytes for %s that a fused kernel would not", j.device0(), finding.Duration(gain)),
		},
		Evidence: fmt.Sprintf("%s to the next elementwise kernel over as many elements; most in %s",
			finding.Count(links, "result goes", "results go"), Names(where)),
		Remedy: "torch.compile, or a fused kernel for the chain",
	}
	if !known {
		v.Certainty = finding.Low
		v.Evidence += "; where shapes are not recorded, three tensors of equal size are assumed"
	}
	for _, o := range r.Operators {
		if o.handed > 0 {
			claimed[o.Name] = true
		}
	}
	j.add(v)
}
