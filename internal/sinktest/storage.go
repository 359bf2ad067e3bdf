// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sinktest

import (
	"context"
	"maps"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// Storage is a storage extension whose contents survive the components that use it. It starts no
// goroutine, so that it can be used in a bubble of package synctest.
type Storage struct {
	component.StartFunc
	component.ShutdownFunc
	// DeletesFail makes deletions fail, too, while writes do.
	DeletesFail bool

	mu     sync.Mutex
	values map[string][]byte
	err    error
}

// Fail lets all writes fail with err from now on; nil ends that.
func (s *Storage) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Len returns the number of values.
func (s *Storage) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values)
}

// Copy returns a storage with the current contents: what a killed process leaves behind.
func (s *Storage) Copy() *Storage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Storage{DeletesFail: s.DeletesFail, values: maps.Clone(s.values)}
}

// GetClient implements storage.Extension.
func (s *Storage) GetClient(_ context.Context, _ component.Kind, id component.ID, name string) (storage.Client, error) {
	return &client{s, id.String() + "/" + name + "/"}, nil
}

type client struct {
	of     *Storage
	prefix string
}

func (c *client) Get(ctx context.Context, key string) ([]byte, error) {
	op := storage.GetOperation(key)
	err := c.Batch(ctx, op)
	return op.Value, err
}

func (c *client) Set(ctx context.Context, key string, value []byte) error {
	return c.Batch(ctx, storage.SetOperation(key, value))
}

func (c *client) Delete(ctx context.Context, key string) error {
	return c.Batch(ctx, storage.DeleteOperation(key))
}

func (c *client) Batch(_ context.Context, ops ...*storage.Operation) error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.values == nil {
		c.of.values = map[string][]byte{}
	}
	for _, op := range ops {
		if c.of.err != nil && (op.Type == storage.Set || op.Type == storage.Delete && c.of.DeletesFail) {
			return c.of.err
		}
	}
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			op.Value = c.of.values[c.prefix+op.Key]
		case storage.Set:
			c.of.values[c.prefix+op.Key] = op.Value
		case storage.Delete:
			delete(c.of.values, c.prefix+op.Key)
		}
	}
	return nil
}

func (*client) Close(context.Context) error { return nil }
