// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import "sync"

// subscribers wakes readers without ever waiting for them.
type subscribers struct {
	mu    sync.Mutex
	chans map[chan struct{}]struct{}
}

func (s *subscribers) add() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	if s.chans == nil {
		s.chans = map[chan struct{}]struct{}{}
	}
	s.chans[c] = struct{}{}
	s.mu.Unlock()
	return c, func() {
		s.mu.Lock()
		delete(s.chans, c)
		s.mu.Unlock()
	}
}

func (s *subscribers) wake() {
	s.mu.Lock()
	for c := range s.chans {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	s.mu.Unlock()
}
