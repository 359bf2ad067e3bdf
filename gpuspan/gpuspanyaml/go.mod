module github.com/otelgpu/otelgpu/gpuspan/gpuspanyaml

go 1.25.0

require (
	github.com/otelgpu/otelgpu/gpuspan v0.1.0
	github.com/stretchr/testify v1.12.1
	go.opentelemetry.io/otel/sdk v1.46.0
	go.uber.org/goleak v1.3.0
	go.yaml.in/yaml/v3 v3.0.5
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/otelgpu/otelgpu/internal/spanfiles v0.1.0 // indirect
	github.com/otelgpu/otelgpu/semconv v0.1.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.46.0 // indirect
	go.opentelemetry.io/otel/metric v1.46.0 // indirect
	go.opentelemetry.io/otel/trace v1.46.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace (
	github.com/otelgpu/otelgpu/gpuspan => ../
	github.com/otelgpu/otelgpu/internal/spanfiles => ../../internal/spanfiles
	github.com/otelgpu/otelgpu/semconv => ../../semconv
)
