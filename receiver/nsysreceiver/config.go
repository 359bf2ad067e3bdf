// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/internal/gputrace/follow"
)

// Config of the receiver.
type Config struct {
	// Files says which files are read and when.
	Files follow.Config `mapstructure:",squash"`
	// Spans says what becomes of them.
	Spans gputrace.Options `mapstructure:",squash"`
}

// Both parts check themselves.
var (
	_ confmap.Validator = (*follow.Config)(nil)
	_ confmap.Validator = (*gputrace.Options)(nil)
)

func createDefaultConfig() component.Config {
	return &Config{Files: follow.NewDefaultConfig(), Spans: gputrace.DefaultOptions(defaultService)}
}
