// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"errors"

	"github.com/otelgpu/otelgpu/internal/prefetch"
)

// batch holds the contents of a window, in the order of the file.
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
	after  int   // number of preceding events in the batch
	events int64 // elements before it
}

func (b *batch) empty() bool { return len(b.list)+len(b.metas) == 0 }

// use passes everything to the handler, and returns how far the file was read if the handler
// returned an error.
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

const keptBatch = 1 << 20 // bytes of a window that is used again; windows of rare long values are not

var errStopped = errors.New("stopped")

// ahead reads the document in a goroutine, and uses it in this one.
func (d *reader) ahead(h Handler) (st Stats, err error) {
	var read error
	err = prefetch.Run(func(p *prefetch.Pipe[*batch]) {
		d.pipe = p
		if read = d.document(); !d.out.empty() {
			d.send()
		}
	}, func(b *batch) (err error) {
		st, err = b.use(h)
		return err
	})
	if err != nil {
		return st, err
	}
	d.stats.Bytes = d.off + int64(d.pos)
	return d.stats, read
}

func (d *reader) send() {
	d.out.buf, d.out.off = d.buf, d.off
	d.pipe.Send(d.out)
}

// handOver passes on what was found, and continues in another window with the rest of this one. A
// window that has to grow does so when all others are back: only one at a time is large.
func (d *reader) handOver() error {
	rest, mine := d.buf[d.pos:], d.out
	away := prefetch.Batches - 1
	if !mine.empty() {
		d.send()
		away++
	}
	if len(rest) > window/2 {
		back, ok := d.pipe.Wait(away)
		if !ok {
			return errStopped
		}
		for _, b := range back {
			if b != mine {
				d.pipe.Free(b)
			}
		}
		return nil
	}
	if away < prefetch.Batches {
		return nil
	}
	next, ok := d.pipe.Take()
	if !ok {
		return errStopped
	}
	if next == nil {
		next = &batch{}
	}
	if next.buf == nil || cap(next.buf) > keptBatch {
		next.buf = make([]byte, 0, window)
	}
	d.off, d.pos, d.buf, d.out = d.off+int64(d.pos), 0, append(next.buf[:0], rest...), next
	return nil
}
