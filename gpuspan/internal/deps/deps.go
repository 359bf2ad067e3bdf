//go:build deps

// Package deps names dependencies of packages under construction.
package deps

import (
	_ "github.com/DataDog/sketches-go/ddsketch"
	_ "github.com/ebitengine/purego"
	_ "github.com/klauspost/compress/gzip"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/stretchr/testify/require"
	_ "go.opentelemetry.io/otel"
	_ "go.opentelemetry.io/otel/metric"
	_ "go.opentelemetry.io/otel/metric/noop"
	_ "go.opentelemetry.io/otel/sdk/metric"
	_ "go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	_ "go.opentelemetry.io/otel/sdk/resource"
	_ "go.opentelemetry.io/otel/sdk/trace"
	_ "go.opentelemetry.io/otel/sdk/trace/tracetest"
	_ "go.opentelemetry.io/otel/trace"
	_ "go.opentelemetry.io/otel/trace/noop"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "gonum.org/v1/gonum/stat"
	_ "pgregory.net/rapid"

	_ "github.com/otelgpu/otelgpu/semconv"
)
