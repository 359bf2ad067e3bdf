// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package prefetch prepares batches on one goroutine while another consumes earlier ones. Batches
// are reused.
package prefetch

// Batches is the number of batches in circulation: one is being filled, one is in use, one waits
// for either.
const Batches = 3

// Pipe passes batches from the goroutine that fills them to the one that uses them, and back. Both
// channels have room for all batches, so a goroutine waits only for a batch, never to pass one on.
type Pipe[T any] struct {
	full, free chan T
	over       chan struct{}
}

// Run calls fill in a new goroutine, and use in the calling one with each batch that fill sends, in
// order. fill has one batch from the beginning; the others are free, and zero values until they
// have been used. Run waits for fill to return and returns the first error of use. It repeats a
// panic of fill in the calling goroutine.
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
		panic(panicked) //nolint:forbidigo // the value of the other goroutine, where the caller sees it
	}
	return nil
}

// Send passes a batch on for use.
func (p *Pipe[T]) Send(b T) { p.full <- b }

// Free returns a batch to the free ones.
func (p *Pipe[T]) Free(b T) { p.free <- b }

// Take waits for a free batch. It returns false if batches are no longer used.
func (p *Pipe[T]) Take() (b T, ok bool) {
	select {
	case b = <-p.free:
		return b, true
	case <-p.over:
		return b, false
	}
}

// Wait takes n batches that Free returns. If they include all batches that were sent, no batch is
// in use when Wait returns.
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
