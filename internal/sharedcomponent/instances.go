// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sharedcomponent has what several components need, above all one instance behind
// components of several signals: the Collector creates one component for each signal, and all
// components with one configuration share it.
package sharedcomponent

import (
	"context"
	"hash/fnv"
	"os"
	"sync"

	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelgpu/otelgpu/semconv"
)

// Instances holds the instances of a factory by their configuration, C; I is a pointer. The factory
// keeps it, because it creates the components of all signals. The zero value is ready.
type Instances[C, I comparable] struct {
	mu  sync.Mutex
	all map[C]I
}

// Get returns the instance of a configuration if there is one that fits (nil: any fits), otherwise
// a new one, which calls forget when it has ended. Another configuration, as after a reload, has
// another instance.
func (s *Instances[C, I]) Get(cfg C, fits func(I) bool, create func(forget func()) (I, error)) (I, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.all[cfg]; ok && (fits == nil || fits(i)) {
		return i, nil
	}
	var i I
	i, err := create(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.all[cfg] == i {
			delete(s.all, cfg)
		}
	})
	if err != nil {
		return i, err
	}
	if s.all == nil {
		s.all = map[C]I{}
	}
	s.all[cfg] = i
	return i, nil
}

// Label returns the option that sets the one attribute of a count.
func Label(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

// Count adds n to a counter if n is above 0. of may be nil.
func Count(ctx context.Context, c metric.Int64Counter, n int64, of metric.AddOption) {
	switch {
	case n <= 0:
	case of == nil:
		c.Add(ctx, n)
	default:
		c.Add(ctx, n, of)
	}
}

// PutText sets an attribute if its value is not empty.
func PutText[K ~string](m pcommon.Map, key K, value string) {
	if value != "" {
		m.PutStr(string(key), value)
	}
}

// SpanID returns a hash of the parts (FNV-1a, 64 bits). Equal parts have equal IDs, in this
// Collector and in others.
func SpanID(of ...[]byte) (id pcommon.SpanID) {
	h := fnv.New64a()
	for _, b := range of {
		_, _ = h.Write(b)
	}
	h.Sum(id[:0])
	if id.IsEmpty() {
		id[len(id)-1] = 1
	}
	return id
}

// InstanceID returns the collector.instance.id of a connector's points, which distinguishes its
// series from another connector's: the configured one, otherwise the name of the host, otherwise
// the Collector's service.instance.id, followed by the connector's name. It does not change with a
// restart of the Collector, unlike a service.instance.id that is not configured: each restart would
// double the series of a store.
func InstanceID(configured string, set connector.Settings) string {
	if configured != "" {
		return configured
	}
	instance, err := os.Hostname()
	if err != nil || instance == "" {
		if v, ok := set.Resource.Attributes().Get(string(semconv.ServiceInstanceIDKey)); ok {
			instance = v.Str()
		}
	}
	if name := set.ID.Name(); name != "" {
		instance += "/" + name
	}
	return instance
}
