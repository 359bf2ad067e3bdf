// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package prefetch prepares batches on one goroutine while another consumes earlier ones. Batches are reused.
package prefetch

// Batches is how many go round: one is filled, one is used, one waits for either.
const Batches = 3

// Pipe takes batches from the goroutine that fills them to the one that uses them, and back. There is room for all of
// them either way, so that only who has none waits.
type Pipe[T any] struct {
	full, free chan T
	over       chan struct{}
}

// Run calls fill in a goroutine of its own, and use in this one with each batch that fill sends, in order. Fill holds
// one batch from the beginning; the others are free, and zero values until they have been used. Run returns use's first
// error, and no sooner than fill has. A panic of fill is one of Run.
func Run[T any](fill func(*Pipe[T]), use func(T) error) error {
	p := &Pipe[T]{make(chan T, Batches), make(chan T, Batches), make(chan struct{})}
	for range Batches - 1 {
		var zero T
		p.Free(zero)
	}
	var panicked any
	go func() {
		defer close(p.full)
		defer func() { panicked = recover() }()
		fill(p)
	}()
	defer func() {
		close(p.over)
		for range p.full { // until fill has returned
		}
	}()
	for b := range p.full {
		if err := use(b); err != nil {
			return err
		}
		p.Free(b)
	}
	if panicked != nil {
		panic(panicked) //nolint:forbidigo // that of the other goroutine, where the caller sees it
	}
	return nil
}

// Send lets a batch be used.
func (p *Pipe[T]) Send(b T) { p.full <- b }

// Free gives a batch back.
func (p *Pipe[T]) Free(b T) { p.free <- b }

// Take waits for a batch that is free. It is false when nobody uses batches any more.
func (p *Pipe[T]) Take() (b T, ok bool) {
	select {
	case b = <-p.free:
		return b, true
	case <-p.over:
		return b, false
	}
}

// Wait takes n batches, which Free gives back. With all that were sent among them, nothing is used any more then.
func (p *Pipe[T]) Wait(n int) (all []T, ok bool) {
	for range n {
		b, ok := p.Take()
		if !ok {
			return nil, false
		}
		all = append(all, b)
	}
	return all, true
}
