// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobspans keeps the newest span of each rank of running jobs. It links what is found out
// without spans, such as a rank that hangs by its dump, with the trace of the step.
package jobspans

import (
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Span is the newest span of a rank.
type Span struct {
	Trace pcommon.TraceID
	ID    pcommon.SpanID
	End   int64 // unix ns
}

const (
	maxJobs  = 100
	maxRanks = 1 << 16 // of all jobs
	// recent is how long before a hang the newest span of its job ended, at most.
	recent = time.Hour
)

type job struct {
	world  int64 // -1: not known
	newest int64 // unix ns
	ranks  map[int64]Span
}

// Newest has the newest spans. The zero value is empty. Its methods can be called from several
// goroutines.
type Newest struct {
	mu    sync.Mutex
	jobs  map[string]*job
	ranks int
}

// Add notes a span of a rank. If there is no room, the job whose spans are the oldest is forgotten.
func (n *Newest) Add(id string, rank, world int64, s Span) {
	n.mu.Lock()
	defer n.mu.Unlock()
	j := n.jobs[id]
	if j == nil {
		if n.jobs == nil {
			n.jobs = map[string]*job{}
		}
		if len(n.jobs) >= maxJobs {
			n.forget()
		}
		j = &job{ranks: map[int64]Span{}}
		n.jobs[strings.Clone(id)] = j
	}
	last, known := j.ranks[rank]
	if !known {
		if n.ranks >= maxRanks {
			return
		}
		n.ranks++
	}
	if s.End >= last.End {
		j.ranks[rank] = s
	}
	j.world, j.newest = world, max(j.newest, s.End)
}

func (n *Newest) forget() {
	oldest := ""
	for id, j := range n.jobs {
		if oldest == "" || j.newest < n.jobs[oldest].newest {
			oldest = id
		}
	}
	n.ranks -= len(n.jobs[oldest].ranks)
	delete(n.jobs, oldest)
}

// Find returns the newest span of the first of the ranks that has one, in the job that is meant: the
// one whose ID is a folder of the path, or else the only one of so many ranks (0: not known) whose
// newest span ended less than an hour before a time.
func (n *Newest) Find(path string, world int64, ranks []int, at time.Time) (s Span, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var candidates []*job
	for id, j := range n.jobs {
		if at.UnixNano()-j.newest > int64(recent) || world > 0 && j.world > 0 && world != j.world {
			continue
		}
		if strings.Contains("/"+filepath.ToSlash(path)+"/", "/"+id+"/") {
			candidates = []*job{j}
			break
		}
		candidates = append(candidates, j)
	}
	if len(candidates) != 1 {
		return s, false
	}
	for _, r := range ranks {
		if s, ok = candidates[0].ranks[int64(r)]; ok {
			return s, true
		}
	}
	return s, false
}

// Source is an extension that has the newest spans.
type Source interface{ JobSpans() *Newest }
