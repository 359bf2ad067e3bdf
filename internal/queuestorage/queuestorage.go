// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package queuestorage keeps the persistent queues of exporterhelper from losing and endlessly
// repeating requests while their disk is full.
//
// exporterhelper (0.159) writes its position whenever it reads a request, and skips the request if
// that fails. When it starts, it deletes the requests that were being sent at its end and then
// writes them to the end of the queue, where they do not fit. It also sends an empty request for
// each one that it could not write. Here reading writes nothing, and after a start the queue is
// read from the oldest request that was being sent.
package queuestorage

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"
)

// Extension returns a storage extension whose queues of exporters can be read while the disk is
// full. When a queue is opened, it reserves twice the bytes that reserve returns, so that a request
// of that size passes a disk that others have filled, such as the queue in front of it, and so that
// requests that were sent can be deleted. If reserve is nil, queues reserve nothing.
func Extension(ext storage.Extension, log *zap.Logger, reserve func() int) storage.Extension {
	if _, done := ext.(*extension); done {
		return ext
	}
	return &extension{ext, log, reserve}
}

type extension struct {
	storage.Extension
	log     *zap.Logger
	reserve func() int
}

// Ready implements extensioncapabilities.PipelineWatcher, as NotReady does.
func (x *extension) Ready() error {
	if w, ok := x.Extension.(interface{ Ready() error }); ok {
		return w.Ready()
	}
	return nil
}

func (*extension) NotReady() error { return nil }

// GetClient implements storage.Extension.
func (x *extension) GetClient(ctx context.Context, kind component.Kind, id component.ID, name string,
) (storage.Client, error) {
	c, err := x.Extension.GetClient(ctx, kind, id, name)
	if err != nil || kind != component.KindExporter {
		return c, err
	}
	q := &client{Client: c, log: x.log.With(zap.Stringer("queue", id))}
	if x.reserve != nil {
		q.open(ctx, x.reserve())
	}
	return q, nil
}

// Host returns a host whose storage extension with an ID is an Extension. If only this host's is
// one, as in a Collector with the file_storage of others, it warns about the queues of exporters.
func Host(host component.Host, id component.ID, log *zap.Logger) component.Host {
	if ext, ok := host.GetExtensions()[id].(storage.Extension); ok && id.Type() == fileStorage {
		if _, done := ext.(*extension); !done {
			log.Warn("queues of exporters in this storage can lose requests while its disk is full (build the Collector with "+
				"file_storage from github.com/otelgpu/otelgpu/cmd/otelcol-gpu/extension/filestorage)", zap.Stringer("storage", id))
		}
	}
	return storageHost{host, id, log}
}

var fileStorage = component.MustNewType("file_storage")

type storageHost struct {
	component.Host
	id  component.ID
	log *zap.Logger
}

// GetExtensions implements component.Host.
func (h storageHost) GetExtensions() map[component.ID]component.Component {
	all := maps.Clone(h.Host.GetExtensions())
	if ext, ok := all[h.id].(storage.Extension); ok {
		all[h.id] = Extension(ext, h.log, nil)
	}
	return all
}

// PositionKey is where exporterhelper keeps the position of a queue.
const PositionKey = "qmv0"

const (
	deleteMost = 100              // keys that are deleted together with another write
	warnEvery  = 10 * time.Minute // least time between two warnings
)

var errMissing = errors.New("the request was not written, or has been sent")

// client is the storage of one queue.
type client struct {
	storage.Client
	log *zap.Logger

	mu      sync.Mutex
	again   unsent
	missing string   // the key of the last read, if nothing was found
	sent    []string // keys of requests that are to be deleted
	// spare is the number of bytes that requests cannot fill: a database copies each page that it
	// changes to a free one, also for a deletion. 0: none
	spare  int
	spent  bool // deletions needed it
	warned time.Time
}

// open reserves space on the disk, unless an earlier start did: a database keeps the pages that it
// frees.
func (c *client) open(ctx context.Context, size int) {
	old, last := storage.GetOperation(spareSize), storage.GetOperation(spareLast)
	if c.Client.Batch(ctx, old, last) == nil && old.Value != nil {
		c.spare, _ = strconv.Atoi(string(old.Value))
		c.spent = last.Value == nil
		return
	}
	c.spare = size
	_ = c.Client.Set(ctx, spareKey, make([]byte, size))
	c.spent = c.Client.Batch(ctx, c.setSpare()...) != nil
	_ = c.Client.Delete(ctx, spareKey)
}

// The large value and the one after it are in a separate page: a page of more than four values is
// divided, and the small ones are before them. To delete that page, one free page suffices for each
// level of the tree.
const (
	spareKey   = "spare" // sorted after the position
	spareSize  = spareKey + "0"
	spareLarge = spareKey + "4"
	spareLast  = spareKey + "5"
)

func (c *client) setSpare() []*storage.Operation {
	return []*storage.Operation{
		storage.SetOperation(spareSize, []byte(strconv.Itoa(c.spare))), storage.SetOperation(spareKey+"1", nil),
		storage.SetOperation(spareKey+"2", nil), storage.SetOperation(spareKey+"3", nil),
		storage.SetOperation(spareLarge, make([]byte, c.spare)), storage.SetOperation(spareLast, []byte{1}),
	}
}

// Get implements storage.Client. It returns the position of exporterhelper as if no request had
// been read: the oldest that was being sent is the next.
func (c *client) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := c.Client.Get(ctx, key)
	if err == nil && key == PositionKey {
		c.mu.Lock()
		defer c.mu.Unlock()
		value, c.again = rewind(value)
	}
	return value, err
}

// Batch implements storage.Client.
func (c *client) Batch(ctx context.Context, ops ...*storage.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var read, set, deletion *storage.Operation
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			read = op
		case storage.Set:
			set = op
		case storage.Delete:
			deletion = op
		}
	}
	switch {
	case set == nil:
		return c.Client.Batch(ctx, ops...)
	case read != nil:
		return c.read(ctx, read)
	case deletion == nil && c.spent:
		err := c.write(ctx, slices.Concat(ops, c.setSpare())...)
		c.spent = err != nil
		return err
	case deletion == nil:
		return c.write(ctx, ops...)
	case deletion.Key != c.missing:
		c.sent = append(c.sent, deletion.Key)
		_ = c.write(ctx, set) // what fails is repeated with the next write
	}
	return nil
}

// read reads a request. The position is written when a request is added or has been sent.
func (c *client) read(ctx context.Context, request *storage.Operation) error {
	c.missing = ""
	if !c.again.skips(request.Key) {
		if err := c.Client.Batch(ctx, request); err != nil {
			return err
		}
	}
	if request.Value == nil {
		c.missing = request.Key
		return errMissing // the queue goes on with the next
	}
	return nil
}

// write writes, and deletes what has been sent.
func (c *client) write(ctx context.Context, ops ...*storage.Operation) error {
	var deletions []*storage.Operation
	for _, key := range c.sent[:min(deleteMost, len(c.sent))] {
		deletions = append(deletions, storage.DeleteOperation(key))
	}
	err := c.Client.Batch(ctx, slices.Concat(ops, deletions)...)
	if err != nil && c.delete(ctx, deletions) {
		c.sent, deletions = c.sent[len(deletions):], nil
		err = c.Client.Batch(ctx, ops...)
	}
	c.report(err)
	if err == nil {
		c.sent = c.sent[len(deletions):]
	}
	return err
}

// delete deletes on a full disk, where deletions make space for other writes.
func (c *client) delete(ctx context.Context, deletions []*storage.Operation) bool {
	switch {
	case len(deletions) == 0:
		return false
	case c.Client.Batch(ctx, deletions...) == nil:
		return true
	case c.spare == 0 || c.spent:
		return false
	}
	err := c.Client.Batch(ctx, storage.DeleteOperation(spareLarge), storage.DeleteOperation(spareLast))
	c.spent = err == nil
	return c.spent && c.Client.Batch(ctx, deletions...) == nil
}

// report logs now and then that writes fail.
func (c *client) report(err error) {
	if now := time.Now(); err != nil && now.Sub(c.warned) > warnEvery {
		c.warned = now
		c.log.Warn("the storage of a queue cannot be written: new requests are rejected, those in it are sent, some of "+
			"them again after a kill (free space on its disk)", zap.Error(err))
	}
}

// unsent are the requests from one index to another that were being sent when the process ended;
// the others had been sent.
type unsent struct {
	from, to uint64
	requests []uint64
}

func (u *unsent) skips(key string) bool {
	n, err := strconv.ParseUint(key, 10, 64)
	return err == nil && u.from <= n && n < u.to && !slices.Contains(u.requests, n)
}

// Fields of exporterhelper's PersistentMetadata.
const (
	readIndex  = 3 // fixed64
	writeIndex = 4 // fixed64
	dispatched = 5 // repeated fixed64
)

// position is where a queue is.
type position struct {
	read, write uint64
	sending     []uint64 // requests before read
	rest        []byte   // other fields
}

// parse reads a position. False: it cannot be read.
func parse(b []byte) (p position, ok bool) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeField(b)
		if n < 0 {
			return position{}, false
		}
		_, _, tag := protowire.ConsumeTag(b)
		value := b[tag:n]
		switch {
		case field == readIndex && kind == protowire.Fixed64Type:
			p.read = binary.LittleEndian.Uint64(value)
		case field == dispatched && kind == protowire.BytesType:
			list, _ := protowire.ConsumeBytes(value)
			for ; len(list) >= 8; list = list[8:] {
				p.sending = append(p.sending, binary.LittleEndian.Uint64(list))
			}
		case field == writeIndex && kind == protowire.Fixed64Type:
			p.write = binary.LittleEndian.Uint64(value)
			fallthrough
		default:
			p.rest = append(p.rest, b[:n]...)
		}
		b = b[n:]
	}
	return p, true
}

// Waiting returns how many requests a queue has whose position has the value, which is nil if it
// never had one. Requests that are being sent count.
func Waiting(value []byte) uint64 {
	p, _ := parse(value)
	return max(p.write, p.read) - p.read + uint64(len(p.sending))
}

// rewind returns a position that begins with the requests that were being sent. A position that it
// cannot read stays as it is.
func rewind(value []byte) ([]byte, unsent) {
	p, ok := parse(value)
	if !ok || len(p.sending) == 0 {
		return value, unsent{}
	}
	u := unsent{from: slices.Min(p.sending), to: p.read, requests: p.sending}
	return protowire.AppendFixed64(protowire.AppendTag(p.rest, readIndex, protowire.Fixed64Type), u.from), u
}
