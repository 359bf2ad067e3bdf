// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"fmt"
	"sync"
	"time"
)

// Embedded as a target runs the host engine inside this process.
const Embedded = "embedded"

// connection is the one connection that a process can have, shared by the sources in it. It counts its users, refuses
// a second target, and is given up only when the last user has let go: then the next one connects anew.
type connection struct {
	api api

	mu     sync.Mutex
	users  int
	target string
	broken bool
	busy   string // what runs now and may block for ever; empty when nothing does
	since  time.Time
}

func newConnection(a api) *connection { return &connection{api: a} }

// acquire connects to the target or joins the connection that is there.
func (c *connection) acquire(target string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.busy != "":
		return fmt.Errorf("DCGM's library is still busy %s since %s", c.busy, c.since.Format(time.TimeOnly))
	case c.users > 0 && c.target != target:
		return fmt.Errorf("this process is connected to DCGM at %q, refused %q (its library has one connection for each process: use one endpoint in all gpu receivers, or a second Collector)", c.target, target)
	case c.users > 0 && c.broken:
		return fmt.Errorf("the connection to DCGM at %q is lost and another gpu receiver has not let go of it yet", c.target)
	case c.users > 0:
		c.users++
		return nil
	}
	if err := c.blocking("connecting to "+target, func() error { return c.api.init(target) }); err != nil {
		return err
	}
	c.users, c.target, c.broken = 1, target, false
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
	return c.blocking("disconnecting", c.api.shutdown)
}

// blocking runs fn without the lock; mu is held before and after.
func (c *connection) blocking(what string, fn func() error) error {
	c.busy, c.since = what, time.Now()
	c.mu.Unlock()
	err := fn()
	c.mu.Lock()
	c.busy = ""
	return err
}

// lost says whether another user found the connection dead.
func (c *connection) lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}
