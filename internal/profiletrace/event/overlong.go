// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"strings"
	"time"
)

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

func (s *Store) findOverlong() (int64, error) {
	suspected := map[uint32][]open{}
	for id, r := range s.rows {
		if r.inside >= leastInside {
			suspected[id] = nil
		}
	}
	if len(suspected) == 0 {
		return 0, nil
	}
	o, found := Wrong{}, map[uint32]int64{}
	closed := func(k *open) {
		if k.inside < leastInside || strings.Contains(s.Names.Name(k.name), "nccl") || apart(k.next, k.end) ||
			len(found) == maxOverlong {
			return
		}
		found[k.seq] = k.next
		o.add(s, KindKernel, k.name, func(name string) string {
			return fmt.Sprintf("%s counts until the next kernel of its queue starts: its end is %s later", name,
				time.Duration(k.end-k.next))
		})
	}
	err := s.timed(func(r *Record) error {
		start, end := r.Start(), r.Start()+r.Duration
		list, ok := suspected[r.Track]
		if !ok || r.Kind != KindKernel {
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
	if more := o.Count - namedEvents; more > 0 {
		o.Named = append(o.Named, fmt.Sprintf("%d more kernels count until the next one of their queue starts", more))
	}
	s.wrong.Overlong, s.shortened = o, found
	return o.Count, err
}
