// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Overlong are kernels whose end cannot be true: later kernels of the same queue started and ended
// before it. A queue runs one kernel after the other; programmatic dependent launch overlaps only
// the next one. Such a kernel counts until the next one starts.
type Overlong struct {
	Count int64
	Named []string // the first three
	ends  map[uint32]int64
}

// leastInside is how many later kernels end before the end of an impossible one. Kernels of one
// graph, which may run beside each other, and collectives do not count.
const leastInside = 3

// kernelRow tells whether a queue may have overlong kernels, in any order of the file.
type kernelRow struct {
	start, end, last int64 // of the kernel that ends last; the latest start
	inside           int
}

func (r *kernelRow) add(e *Event) {
	switch end := e.End(); {
	case r.end == 0 || end >= r.end:
		if r.end != 0 && e.Start < r.last {
			r.inside = leastInside
		}
		r.start, r.end = e.Start, end
	case e.Start > r.start:
		r.inside++
	}
	r.last = max(r.last, e.Start)
}

// open is a kernel that later ones of its queue may end before.
type open struct {
	seq              uint32
	correlation, end int64
	next             int64 // start of the first kernel that ends before it
	inside           int
	name             uint32
}

// maxOpen bounds the kernels of a queue that contain each other, maxOverlong the shortened
// kernels.
const (
	maxOpen     = 16
	maxOverlong = 1 << 20
)

func (s *Store) findOverlong() error {
	s.overlong = Overlong{}
	suspected := map[uint32][]open{}
	for id, r := range s.rows {
		if r.inside >= leastInside {
			suspected[id] = nil
		}
	}
	if len(suspected) == 0 {
		return nil
	}
	o := Overlong{ends: map[uint32]int64{}}
	first, last, all := int64(math.MaxInt64), int64(math.MinInt64), bound{math.MaxInt64, math.MinInt64}
	ends := func(end int64, counts bool) {
		if all.last = max(all.last, end); counts {
			last = max(last, end)
		}
	}
	closed := func(k *open) {
		name := s.Names.Name(k.name)
		if k.inside < leastInside || strings.Contains(name, "nccl") || apart(k.next, k.end) || len(o.ends) == maxOverlong {
			ends(k.end, true)
			return
		}
		o.Count++
		o.ends[k.seq] = k.next
		if len(o.Named) < outlierNames {
			o.Named = append(o.Named, fmt.Sprintf("%q counts until the next kernel of its queue starts: its end is %s later",
				spanfacts.ValidText(name, spanfacts.MaxText), time.Duration(k.end-k.next)))
		}
	}
	err := s.timed(func(r *Record) error {
		start, end := r.Start(), r.Start()+r.Duration
		t := s.trackList[r.Track]
		counts := r.Kind != KindMemory && (t.Device || t.Outer != ProfilerProcess)
		if all.first = min(all.first, start); counts {
			first = min(first, start)
		}
		list, ok := suspected[r.Track]
		if !ok || r.Kind != KindKernel {
			ends(end, counts)
			return nil
		}
		for len(list) > 0 && list[len(list)-1].end <= end || len(list) == maxOpen {
			closed(&list[len(list)-1])
			list = list[:len(list)-1]
		}
		for i := range list {
			k := &list[i]
			if k.correlation != 0 && k.correlation == r.Correlation {
				continue
			}
			if k.inside++; k.inside == 1 {
				k.next = start
			}
		}
		suspected[r.Track] = append(list, open{r.Seq, r.Correlation, end, 0, 0, r.Name})
		return nil
	})
	for _, list := range suspected {
		for i := range list {
			closed(&list[i])
		}
	}
	if more := o.Count - outlierNames; more > 0 {
		o.Named = append(o.Named, fmt.Sprintf("%d more kernels count until the next one of their queue starts", more))
	}
	if err == nil && o.Count > 0 {
		s.overlong, s.first, s.last, s.earliest, s.latest = o, first, last, all.first, all.last
	}
	return err
}

// Overlong returns what Bound found.
func (s *Store) Overlong() Overlong { return s.overlong }
