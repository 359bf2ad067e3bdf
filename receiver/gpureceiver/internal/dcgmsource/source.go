// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"errors"
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// Settings of the source.
type Settings struct {
	Target       string        // Embedded, "host:port" or "unix:///path"
	Sampling     time.Duration // of the fast and the profiling fields
	Slow         time.Duration // of the slow fields, of the list of devices and of their health
	KeepAge      time.Duration // how long the host engine keeps samples
	MaxStaleness time.Duration // values older than this against the host engine's clock are dropped
	Profiling    bool
}

// Source implements gpudata.Source.
type Source struct {
	set     Settings
	conn    *connection
	session *session
	seen    *seenXIDs // outlives sessions: an XID that is kept over a reconnect is not a new one
}

// minPace: the host engine keeps every sample with its time, so asking more often only costs. The library takes 1 MiB for
// any answer.
const minPace = time.Second

func newSource(set Settings, conn *connection) *Source {
	return &Source{set: set, conn: conn, seen: newSeenXIDs()}
}

// Name implements gpudata.Source.
func (*Source) Name() string { return "dcgm" }

// Pace implements gpudata.Source.
func (s *Source) Pace() time.Duration { return max(s.set.Sampling, minPace) }

// Open implements gpudata.Source.
func (s *Source) Open() error {
	if err := s.conn.acquire(s.set.Target); err != nil {
		return fmt.Errorf("cannot reach DCGM at %q: %w", s.set.Target, err)
	}
	session, err := newSession(s.conn.api, s.set, s.seen)
	if err == nil && len(session.devices) == 0 && s.set.Target == Embedded {
		session.close()
		err = fmt.Errorf("DCGM has no GPU: %w", gpudata.ErrUnavailable)
	}
	if err != nil {
		return errors.Join(err, s.conn.release(true))
	}
	s.session = session
	return nil
}

// Devices implements gpudata.Source.
func (s *Source) Devices() []gpusamplesextension.Device {
	if s.session == nil {
		return nil
	}
	return s.session.devices
}

// Read implements gpudata.Source.
func (s *Source) Read(b *gpudata.Batch) error {
	if s.conn.lost() {
		return fmt.Errorf("connection to DCGM at %q is lost", s.set.Target)
	}
	if err := s.session.read(b); err != nil {
		return fmt.Errorf("DCGM at %q: %w", s.set.Target, err)
	}
	return nil
}

// Close implements gpudata.Source.
func (s *Source) Close() error {
	if s.session == nil {
		return nil
	}
	dead := s.session.dead
	if !dead {
		s.session.close()
	}
	s.session = nil
	return s.conn.release(dead)
}
