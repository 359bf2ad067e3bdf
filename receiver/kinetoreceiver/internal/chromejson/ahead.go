// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import "errors"

// batch is what was found in a window, in the order of the file.
type batch struct {
	buf   []byte // the window
	off   int64  // of buf[0] in the stream
	list  []parsed
	metas []meta
	event Event
}

// meta is a field of the top level.
type meta struct {
	key    string
	value  value
	after  int   // events of the batch that come before it
	events int64 // elements before it
}

func (b *batch) empty() bool { return len(b.list)+len(b.metas) == 0 }

// use hands everything to the handler, and says how far the file was read when the handler ended that with an error.
func (b *batch) use(h Handler) (Stats, error) {
	metas := b.metas
	for i := 0; ; i++ {
		for ; len(metas) > 0 && metas[0].after == i; metas = metas[1:] {
			m := &metas[0]
			if err := h.Meta([]byte(m.key), m.value.of(b.buf)); err != nil {
				return Stats{Bytes: b.off + int64(m.value.to), Events: m.events}, err
			}
		}
		if i == len(b.list) {
			break
		}
		p := &b.list[i]
		b.event.set(b.buf, p)
		if err := h.Event(&b.event); err != nil {
			return Stats{Bytes: b.off + int64(p.end), Events: p.events}, err
		}
	}
	b.list, b.metas = b.list[:0], b.metas[:0]
	return Stats{}, nil
}

const (
	batches   = 3       // one is filled, one used, one waits for either
	keptBatch = 1 << 20 // bytes of a window that is used again; those of seldom long values are not
)

// pipe takes batches from the goroutine that scans to the one that uses them, and back. There is room for all of them
// either way, so that only who has none waits.
type pipe struct{ full, free chan *batch }

var errStopped = errors.New("stopped")

// ahead reads the document in a goroutine, and uses it in this one.
func (d *reader) ahead(h Handler) (Stats, error) {
	p := &pipe{make(chan *batch, batches), make(chan *batch, batches)}
	d.pipe = p
	for range batches - 1 {
		p.free <- &batch{}
	}
	var err error
	var panicked any
	go func() {
		defer close(p.full)
		defer func() { panicked = recover() }()
		if err = d.document(); !d.out.empty() {
			d.send()
		}
	}()
	defer func() {
		close(p.free)
		for range p.full { // until the goroutine has ended
		}
	}()
	for b := range p.full {
		if st, err := b.use(h); err != nil {
			return st, err
		}
		p.free <- b
	}
	if panicked != nil {
		panic(panicked) //nolint:forbidigo // that of the other goroutine, where the caller sees it
	}
	d.stats.Bytes = d.off + int64(d.pos)
	return d.stats, err
}

func (d *reader) send() {
	d.out.buf, d.out.off = d.buf, d.off
	d.pipe.full <- d.out
}

// handOver lets what was found be used, and goes on in another window with what is left of this one. A window that has
// to grow does so alone, when all others are back: only one at a time is large.
func (d *reader) handOver() error {
	rest, mine := d.buf[d.pos:], d.out
	away := batches - 1
	if !mine.empty() {
		d.send()
		away++
	}
	if len(rest) > window/2 {
		var back [batches]*batch
		for i := range away {
			if back[i] = <-d.pipe.free; back[i] == nil {
				return errStopped
			}
		}
		for _, b := range back[:away] {
			if b != mine {
				d.pipe.free <- b
			}
		}
		return nil
	}
	if away < batches {
		return nil
	}
	next := <-d.pipe.free
	if next == nil {
		return errStopped
	}
	if next.buf == nil || cap(next.buf) > keptBatch {
		next.buf = make([]byte, 0, window)
	}
	d.off, d.pos, d.buf, d.out = d.off+int64(d.pos), 0, append(next.buf[:0], rest...), next
	return nil
}
