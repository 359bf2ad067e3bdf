// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"cmp"
	"context"
	"runtime"

	"github.com/otelgpu/otelgpu/internal/prefetch"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
)

// builder lets one goroutine sweep over the events while another writes spans. The data of a job
// does not change after it has been submitted: nodes are complete then, and the writer waits for
// steps, which later activities can still change.
type builder struct {
	pipe *prefetch.Pipe[[]job]
	jobs []job // being written
	over bool  // jobs are no longer read
}

// job is one span: of a node, or else of an activity.
type job struct {
	node  *node
	act   link.Activity
	work  link.Work // of act's launch
	above *link.Node
	of    *link.Process
}

const builderJobs = 64 // that go together

// slot returns where the next activity may be stored. It belongs to the next job.
func (b *builder) slot() *link.Activity {
	if len(b.jobs) == cap(b.jobs) {
		b.hand()
	}
	return &b.jobs[:len(b.jobs)+1][len(b.jobs)].act
}

func (b *builder) next() *job {
	b.slot()
	b.jobs = b.jobs[:len(b.jobs)+1]
	return &b.jobs[len(b.jobs)-1]
}

// device accepts the activity in the slot.
func (b *builder) device(above *link.Node, p *link.Process) {
	j := b.next()
	j.node, j.above, j.of = nil, above, p
	if j.act.Launch.Work != nil {
		j.work = *j.act.Launch.Work
		j.act.Launch.Work = &j.work
	}
}

func (b *builder) host(n *node) {
	b.next().node = n
	if n.Kind == event.KindStep {
		b.hand()
		b.wait()
	}
}

// hand passes on the jobs to be written as spans, and takes an empty list for further ones.
func (b *builder) hand() {
	if !b.over {
		b.pipe.Send(b.jobs)
		var ok bool
		b.jobs, ok = b.pipe.Take()
		b.over = !ok
	}
	if b.jobs == nil {
		b.jobs = make([]job, 0, builderJobs)
	}
	b.jobs = b.jobs[:0]
}

// wait returns when all submitted jobs have been written.
func (b *builder) wait() {
	back, ok := b.pipe.Wait(prefetch.Batches - 1)
	b.over = !ok
	for _, jobs := range back {
		b.pipe.Free(jobs)
	}
}

// sweep runs the sweep of a writer. If the level has many spans and the program has several
// processors, it runs in a separate goroutine, which has ended when sweep returns, and spans are
// written in this one.
func (w *Writer) sweep(ctx context.Context, s *link.Sweep) error {
	if runtime.GOMAXPROCS(0) == 1 || w.p.Detail == LevelSteps || w.p.Detail == LevelAnnotations {
		return s.Run(ctx)
	}
	return w.ahead(ctx, s)
}

func (w *Writer) ahead(ctx context.Context, s *link.Sweep) error {
	b := &builder{jobs: make([]job, 0, builderJobs)}
	w.builder, s.Slot = b, b.slot
	defer func() { w.builder, s.Slot = nil, nil }()
	var err error
	used := prefetch.Run(func(p *prefetch.Pipe[[]job]) {
		b.pipe = p
		if err = s.Run(ctx); len(b.jobs) > 0 && !b.over {
			p.Send(b.jobs)
		}
	}, func(jobs []job) error {
		for i := range jobs {
			if j := &jobs[i]; j.node != nil {
				w.out.host(j.node)
			} else {
				w.out.device(&j.act, kept(j.above), j.of)
			}
		}
		return nil
	})
	return cmp.Or(used, err)
}
