// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
)

// SourceType is the component type of a [Source].
var SourceType = component.MustNewType("source")

// Source makes receivers that other code pushes traces into: the receiver source/NAME of a configuration is where
// Next(NAME) leads to.
type Source struct {
	mu   sync.Mutex
	next map[string]consumer.Traces
}

type sourceReceiver struct {
	component.StartFunc
	component.ShutdownFunc
}

// NewFactory makes the receiver factory.
func (s *Source) NewFactory() receiver.Factory {
	create := func(_ context.Context, set receiver.Settings, _ component.Config, next consumer.Traces) (receiver.Traces,
		error,
	) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.next == nil {
			s.next = map[string]consumer.Traces{}
		}
		s.next[set.ID.Name()] = next
		return sourceReceiver{}, nil
	}
	return receiver.NewFactory(SourceType, func() component.Config { return &struct{}{} },
		receiver.WithTraces(create, component.StabilityLevelDevelopment))
}

// Next is the first consumer behind source/NAME, or nil where no pipeline has that receiver.
func (s *Source) Next(name string) consumer.Traces {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next[name]
}
