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

// Source is a receiver that other code pushes traces into: Next is the first consumer of the pipeline it stands in.
type Source struct {
	mu   sync.Mutex
	next consumer.Traces
}

type sourceReceiver struct {
	component.StartFunc
	component.ShutdownFunc
}

// NewFactory makes the receiver factory; its one pipeline becomes the Source's consumer.
func (s *Source) NewFactory() receiver.Factory {
	create := func(_ context.Context, _ receiver.Settings, _ component.Config, next consumer.Traces) (receiver.Traces, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.next = next
		return sourceReceiver{}, nil
	}
	return receiver.NewFactory(SourceType, func() component.Config { return &struct{}{} },
		receiver.WithTraces(create, component.StabilityLevelDevelopment))
}

// Next is the consumer, or nil before the pipeline was built.
func (s *Source) Next() consumer.Traces {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}
