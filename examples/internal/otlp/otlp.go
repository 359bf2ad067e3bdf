// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package otlp sends an example's spans to a Collector.
package otlp

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

// Provider returns a provider that sends the spans of a service to an OTLP/gRPC endpoint such as
// http://localhost:4317. Without an endpoint no spans are recorded.
func Provider(ctx context.Context, endpoint, service string) (*sdktrace.TracerProvider, error) {
	if endpoint == "" {
		return sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())), nil
	}
	to, err := To(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	res := resource.NewSchemaless(semconv.ServiceName(service))
	return sdktrace.NewTracerProvider(append(to, sdktrace.WithResource(res))...), nil
}

// To sends the spans of a provider to an OTLP/gRPC endpoint; "": nowhere.
func To(ctx context.Context, endpoint string) ([]sdktrace.TracerProviderOption, error) {
	if endpoint == "" {
		return nil, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("cannot export to %q: %w", endpoint, err)
	}
	return []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter)}, nil
}
