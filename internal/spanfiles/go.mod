module github.com/otelgpu/otelgpu/internal/spanfiles

go 1.25.0

require (
	github.com/otelgpu/otelgpu/semconv v0.1.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.opentelemetry.io/otel v1.46.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/otelgpu/otelgpu/semconv => ../../semconv
