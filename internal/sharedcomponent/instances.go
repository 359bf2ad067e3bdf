// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sharedcomponent holds what several components need in common, above all one instance behind components of
// several signals: the Collector creates one component for each signal, and all of one configuration share it.
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

// Instances are the instances of a factory by their configuration, C; I is a pointer. They are kept by the factory,
// which makes the components of all signals. The zero value is ready.
type Instances[C, I comparable] struct {
	mu  sync.Mutex
	all map[C]I
}

// Get is the instance of a configuration where there is one that fits (nil: any does), else a new one, which calls
// forget when it has ended. Another configuration, as after a reload, has another instance.
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

// Label is the one attribute of a count.
func Label(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

// Count adds to a counter what is more than nothing. of may be nil.
func Count(ctx context.Context, c metric.Int64Counter, n int64, of metric.AddOption) {
	switch {
	case n <= 0:
	case of == nil:
		c.Add(ctx, n)
	default:
		c.Add(ctx, n, of)
	}
}

// PutText puts an attribute where its value is known.
func PutText[K ~string](m pcommon.Map, key K, value string) {
	if value != "" {
		m.PutStr(string(key), value)
	}
}

// SpanID is made of what a span is of (FNV-1a, 64 bits), so that the same one, made again here or by another Collector,
// has the same.
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

// InstanceID is collector.instance.id of a connector's points, which tells its series from those of another: as
// configured, else the name of the host, else the Collector's service.instance.id, with the connector's name. It does
// not change when the Collector is started again, as its service.instance.id does unless it is configured: each start
// would double the series of a store.
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
