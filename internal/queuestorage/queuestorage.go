// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package queuestorage keeps the persistent queues of exporterhelper from losing requests while
// their disk is full.
//
// exporterhelper (0.159) writes its position whenever it reads a request, and skips the request if
// that fails. When it starts, it deletes the requests that were being sent at its end and then
// writes them to the end of the queue, where they do not fit. It also sends an empty request for
// each one that it could not write.
package queuestorage

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.uber.org/zap"
)

// Extension returns a storage extension whose queues of exporters can be read while the disk is
// full.
func Extension(ext storage.Extension, log *zap.Logger) storage.Extension {
	if _, done := ext.(*extension); done {
		return ext
	}
	return &extension{ext, log}
}

type extension struct {
	storage.Extension
	log *zap.Logger
}

// GetClient implements storage.Extension.
func (x *extension) GetClient(ctx context.Context, kind component.Kind, id component.ID, name string,
) (storage.Client, error) {
	c, err := x.Extension.GetClient(ctx, kind, id, name)
	if err != nil || kind != component.KindExporter {
		return c, err
	}
	return &client{Client: c, log: x.log.With(zap.Stringer("queue", id))}, nil
}

// Host returns a host whose storage extension with an ID is an Extension. If only this host's is one,
// as in a Collector with the file_storage of others, it warns about the queues of exporters.
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
		all[h.id] = Extension(ext, h.log)
	}
	return all
}

const (
	maxDeleted = 100_000          // keys that wait for their deletion; the values of further ones stay in the storage
	deleteMost = 100              // keys that are deleted together with another write
	warnEvery  = 10 * time.Minute // least time between two warnings
)

var errMissing = errors.New("the request was not written")

// client is the storage of one queue.
type client struct {
	storage.Client
	log *zap.Logger

	mu      sync.Mutex
	found   map[string][]byte  // what has just been read, if nothing was written with it
	moving  map[string][]byte  // requests that were being sent, by their old key, until they are written again
	kept    map[string]request // the same by their new key, if they could not be written
	deleted []string           // keys that could not be deleted
	warned  time.Time
}

type request struct {
	old   string
	value []byte
}

// Batch implements storage.Client.
func (c *client) Batch(ctx context.Context, ops ...*storage.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var reads, writes, deletions []*storage.Operation
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			reads = append(reads, op)
		case storage.Set:
			writes = append(writes, op)
		case storage.Delete:
			deletions = append(deletions, op)
		}
	}
	switch {
	case len(reads) == len(ops):
		return c.find(ctx, reads)
	case len(deletions) == len(ops) && c.move(deletions):
		return nil
	}
	c.found = nil
	key, moved := c.moved(writes)
	all := c.extend(slices.Clone(ops), deletions, len(writes) > 0)
	if moved != nil {
		all = append(all, storage.DeleteOperation(moved.old))
	}
	err := c.Client.Batch(ctx, all...)
	if err == nil || len(writes) == 0 {
		for _, op := range deletions {
			delete(c.kept, op.Key)
		}
	}
	if len(writes) > 0 {
		c.report(err)
	}
	switch {
	case err == nil:
		c.fill(reads)
		if len(writes) > 0 {
			clear(c.kept)
			c.deleted = c.deleted[min(deleteMost, len(c.deleted)):]
		}
	case moved != nil:
		if c.kept == nil {
			c.kept = map[string]request{}
		}
		c.kept[key] = *moved
		return nil
	case len(reads) > 0:
		// The position is written with the next request; after a kill before that, requests are
		// sent again.
		if err := c.Client.Batch(ctx, reads...); err != nil {
			return err
		}
		c.fill(reads)
	case len(writes) == 0:
		for _, op := range all {
			if len(c.deleted) < maxDeleted {
				c.deleted = append(c.deleted, op.Key)
			}
		}
		return err
	default:
		return err
	}
	for _, op := range reads {
		if op.Value == nil {
			return errMissing // the queue skips it
		}
	}
	return nil
}

// extend adds what waits to be written. A position is not written without it, because the requests
// that wait would be before it.
func (c *client) extend(ops, deletions []*storage.Operation, writes bool) []*storage.Operation {
	for key, k := range c.kept {
		sent := slices.ContainsFunc(deletions, func(op *storage.Operation) bool { return op.Key == key })
		if writes && !sent {
			ops = append(ops, storage.SetOperation(key, k.value))
		}
		if writes || sent {
			ops = append(ops, storage.DeleteOperation(k.old))
		}
	}
	if writes {
		for _, key := range c.deleted[:min(deleteMost, len(c.deleted))] {
			ops = append(ops, storage.DeleteOperation(key))
		}
	}
	return ops
}

// find reads, and remembers the result until the next operation.
func (c *client) find(ctx context.Context, reads []*storage.Operation) error {
	if err := c.Client.Batch(ctx, reads...); err != nil {
		return err
	}
	c.found = map[string][]byte{}
	for _, op := range reads {
		c.found[op.Key] = op.Value
	}
	return nil
}

// move reports whether what has just been read is deleted, which is how the queue begins to write
// requests under other keys. They stay until they are written; missing ones have been sent.
func (c *client) move(deletions []*storage.Operation) bool {
	for _, op := range deletions {
		if _, ok := c.found[op.Key]; !ok {
			return false
		}
	}
	c.moving, c.found = c.found, nil
	return true
}

// moved returns the request that is written under another key and that key, nil for another write.
func (c *client) moved(writes []*storage.Operation) (key string, r *request) {
	for _, op := range writes {
		for old, value := range c.moving {
			if bytes.Equal(value, op.Value) {
				delete(c.moving, old)
				return op.Key, &request{old, value}
			}
		}
	}
	return "", nil
}

// fill completes reads with requests that could not be written.
func (c *client) fill(reads []*storage.Operation) {
	for _, op := range reads {
		if k, ok := c.kept[op.Key]; ok {
			op.Value = k.value
		}
	}
}

// report logs now and then that writes fail.
func (c *client) report(err error) {
	if now := time.Now(); err != nil && now.Sub(c.warned) > warnEvery {
		c.warned = now
		c.log.Warn("the storage of a queue cannot be written: new requests are rejected, those in it are sent, some of "+
			"them again after a kill (free space on its disk)", zap.Error(err))
	}
}
