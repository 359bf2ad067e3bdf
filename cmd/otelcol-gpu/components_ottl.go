// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ottl

package main

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/filterprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/tailsamplingprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"go.opentelemetry.io/collector/processor"
)

// ottlProcessors returns the processors that use the OpenTelemetry Transformation Language, which
// takes a quarter of the time of a build. They are in the full build, and here with -tags ottl.
func ottlProcessors() []part[processor.Factory] {
	return []part[processor.Factory]{
		contrib[processor.Factory](filterprocessor.NewFactory(), "processor/filterprocessor"),
		contrib[processor.Factory](tailsamplingprocessor.NewFactory(), "processor/tailsamplingprocessor"),
		contrib[processor.Factory](transformprocessor.NewFactory(), "processor/transformprocessor"),
	}
}
