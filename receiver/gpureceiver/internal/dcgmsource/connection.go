// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"fmt"
	"sync"
)

// Embedded as a target runs the host engine inside this process.
const Embedded = "embedded"

// connection is the one connection that a process can have, shared by the sources in it. It counts its users, refuses
// a second target, and is given up only when the last user has let go: then the next one connects anew.
type connection struct {
	api api

	mu     sync.Mutex
	idle   sync.Cond // of mu: nothing runs that may block for ever
	users  int
	target string // of the connection, or of the attempt that runs
	broken bool
	busy   bool
}

func newConnection(a api) *connection {
	c := &connection{api: a}
	c.idle.L = &c.mu
	return c
}

// acquire connects to the target or joins the connection that is there. It waits for another source that connects to
// the same target, that disconnects, or that has not noticed yet that their connection is dead.
func (c *connection) acquire(target string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy && (c.target == target || c.target == "") || c.users > 0 && c.broken && c.target == target {
		c.idle.Wait()
	}
	switch {
	case (c.busy || c.users > 0) && c.target != target:
		return fmt.Errorf(
			"this process is connected to DCGM at %q, refused %q (its library has one connection for each process: "+
				"use one endpoint in all gpu receivers, or a second Collector)", c.target, target)
	case c.users > 0:
		c.users++
		return nil
	}
	c.target = target
	if err := c.blocking(func() error { return c.api.init(target) }); err != nil {
		return err
	}
	c.users, c.broken = 1, false
	return nil
}

// release lets go; broken says that the connection is known to be dead.
func (c *connection) release(broken bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = c.broken || broken
	if c.users--; c.users > 0 {
		return nil
	}
	c.target = "" // of nobody: whoever comes waits and connects anew
	return c.blocking(c.api.shutdown)
}

// blocking runs fn without the lock; mu is held before and after.
func (c *connection) blocking(fn func() error) error {
	c.busy = true
	c.mu.Unlock()
	err := fn()
	c.mu.Lock()
	c.busy = false
	c.idle.Broadcast()
	return err
}

// lost says whether another user found the connection dead.
func (c *connection) lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}
