// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"errors"
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
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
	Processes    bool // list the processes that compute on the boards
	// Without are quantities whose profiling fields are not watched.
	Without []gpuquantity.Quantity
}

// source implements gpudata.Source.
type source struct {
	set     Settings
	api     api
	session *session
	kept    *kept
	now     func() time.Time
}

// The host engine keeps every sample with its time, so reading more often only costs. The interval
// must be short enough for `settle` of gpu_join, and twice per emission of metrics, so that none
// finds nothing new.
const (
	minPace = 250 * time.Millisecond
	maxPace = 2 * time.Second
)

// LeastSampling is the shortest sampling interval. A host engine does not keep pace with shorter
// ones.
const LeastSampling = 10 * time.Millisecond

func newSource(set Settings, a api) *source {
	return &source{set: set, api: a, kept: &kept{devices: map[string]*deviceState{}}, now: time.Now}
}

func (*source) Name() string { return "dcgm" }

func (s *source) Pace() time.Duration {
	pace := min(s.set.Slow/2, maxPace)
	if s.set.Sampling >= coarse {
		pace = min(pace, s.set.Sampling/2)
	}
	return max(pace, minPace)
}

func (s *source) Open() error {
	if err := s.api.init(s.set.Target); err != nil {
		return err
	}
	session, err := newSession(s.api, s.set, s.kept, s.now)
	if err == nil && len(session.devices) == 0 && s.set.Target == Embedded {
		session.close()
		err = fmt.Errorf("DCGM has no GPU: %w", gpudata.ErrUnavailable)
	}
	if err != nil {
		return errors.Join(err, s.api.shutdown())
	}
	s.session = session
	return nil
}

func (s *source) Devices() []devicesamples.Device {
	if s.session == nil {
		return nil
	}
	return s.session.devices
}

func (s *source) Read(b *gpudata.Batch) error {
	if err := s.session.read(b, s.Pace()); err != nil {
		return fmt.Errorf("DCGM at %q: %w", s.set.Target, err)
	}
	return nil
}

func (s *source) Close() error {
	if s.session == nil {
		return nil
	}
	dead := s.session.dead
	if dead {
		s.session.remember()
	} else {
		s.session.close()
	}
	s.session = nil
	return s.api.shutdown()
}
