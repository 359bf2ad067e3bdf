// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// launch is a host call that may have put work on a device.
type launch struct {
	surroundings          // without the node
	at           *nodeRef // of that node
	Start, End   int64
	Process      *Process
	Stack        uint32 // of ranges around it; see Stacks
	graph        bool   // it launches a graph
	thread       uint32 // its track
	previous     int64  // end of the launch before, of the same thread or of the main one
	recorded     int64  // what recording cost the thread since its launch before, in ns; an estimate
	waits        int64  // for the device, so far, of the process
}

// surroundings are the ranges around a moment of a thread of the host; names are 0 if unknown.
type surroundings struct {
	node   *Node         // nearest that is kept
	Step   *Step         // nil: none
	Work   *Work         // of an operator around it; see workOf
	unit   timeline.Unit // unit of what is launched
	opaque bool          // within a compiled region
	mover  uint32        // outermost operator in which bytes are moved only, within caller
	caller uint32        // innermost range that is neither a call nor a mover: the caller that needs the bytes
	Op     uint32        // innermost operator
	opAt   int64         // its begin
	trial  uint32        // outermost frame in which kernels are compared with each other
	tried  int64         // its begin
	named  uint32        // innermost that has a name, not a call
	around uint32        // innermost annotation or module
	phase  uint32        // outermost annotation without a number, except steps
	module uint32        // in the tree of modules; 0: outside
	// whether module is of the operator whose gradient is computed
	backward bool
}

// launchTable keeps launches by correlation: about the latest launchMemory, without ever growing
// beyond that. Buckets of a few keys are indexed by the low bits, since correlations count up; a
// full bucket evicts its oldest launch. Launches are stored apart from the buckets, which therefore
// hold no pointers and are small enough to be rebuilt when they grow.
type launchTable struct {
	buckets  []launchBucket
	launches []launch
	// The lowest and the highest correlation that was evicted. An activity between them without a
	// launch counts as one whose launch was evicted; it is unlikely that the file has none.
	least, highest int64
	forgotten      int64 // activities whose launch was dropped before they began
}

const (
	launchWays   = 4
	launchMemory = 1 << 16 // a stream queues some 1,000
	firstBuckets = 1 << 8
)

type launchBucket struct {
	keys [launchWays]int64 // 0: free
	at   [launchWays]uint32
}

func (t *launchTable) bucket(corr int64) *launchBucket {
	return &t.buckets[uint64(corr+corr>>event.CorrelationBits*0x9e3779b1)&uint64(len(t.buckets)-1)]
}

// newLaunchTable returns a table with room for a number of launches, up to the limit.
func newLaunchTable(launches int64) *launchTable {
	n := int(min(launches, launchMemory))
	buckets := firstBuckets
	for buckets*launchWays < n {
		buckets *= 2
	}
	return &launchTable{
		buckets: make([]launchBucket, buckets), launches: make([]launch, 0, n), least: math.MaxInt64,
	}
}

// put stores a launch; the same correlation again replaces it.
func (t *launchTable) put(corr int64, l launch) {
	for {
		b := t.bucket(corr)
		oldest := 0
		for i := range launchWays {
			switch b.keys[i] {
			case corr:
				t.launches[b.at[i]] = l
				return
			case 0:
				b.keys[i], b.at[i] = corr, uint32(len(t.launches))
				t.launches = append(t.launches, l)
				return
			}
			if t.launches[b.at[i]].Start < t.launches[b.at[oldest]].Start {
				oldest = i
			}
		}
		if len(t.buckets)*launchWays >= launchMemory {
			gone := b.keys[oldest]
			t.least, t.highest = min(t.least, gone), max(t.highest, gone)
			b.keys[oldest] = corr
			t.launches[b.at[oldest]] = l
			return
		}
		t.grow()
	}
}

func (t *launchTable) grow() {
	old := t.buckets
	t.buckets = make([]launchBucket, 4*len(old))
	for i := range old {
		for j, k := range old[i].keys {
			if k == 0 {
				continue
			}
			b := t.bucket(k) // has room: one bucket becomes four
			for n := range launchWays {
				if b.keys[n] == 0 {
					b.keys[n], b.at[n] = k, old[i].at[j]
					break
				}
			}
		}
	}
}

func (t *launchTable) get(corr int64) (*launch, bool) {
	if corr == 0 {
		return nil, false
	}
	b := t.bucket(corr)
	for i, k := range b.keys {
		if k == corr {
			return &t.launches[b.at[i]], true
		}
	}
	if t.least <= corr && corr <= t.highest {
		t.forgotten++
	}
	return nil, false
}
