module github.com/otelgpu/otelgpu/examples

go 1.26.7

require (
	github.com/otelgpu/otelgpu/gpuspan v0.1.0
	github.com/otelgpu/otelgpu/gpuspan/gpuspanyaml v0.1.0
	github.com/otelgpu/otelgpu/gpuspan/report/ddsketch v0.1.0
	github.com/stretchr/testify v1.12.1
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.70.0
	go.opentelemetry.io/otel v1.46.0
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc v1.46.0
	go.opentelemetry.io/otel/sdk v1.46.0
	go.opentelemetry.io/otel/trace v1.46.0
	go.opentelemetry.io/proto/otlp v1.11.0
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.83.1
)

require (
	github.com/DataDog/sketches-go v1.4.8 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.30.0 // indirect
	github.com/otelgpu/otelgpu/internal/spanfiles v0.1.0 // indirect
	github.com/otelgpu/otelgpu/semconv v0.1.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.46.0 // indirect
	go.opentelemetry.io/otel/metric v1.46.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260819154853-08b0e4226688 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260819154853-08b0e4226688 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/otelgpu/otelgpu/gpuspan => ../gpuspan
	github.com/otelgpu/otelgpu/gpuspan/gpuspanyaml => ../gpuspan/gpuspanyaml
	github.com/otelgpu/otelgpu/gpuspan/report/ddsketch => ../gpuspan/report/ddsketch
	github.com/otelgpu/otelgpu/internal/spanfiles => ../internal/spanfiles
	github.com/otelgpu/otelgpu/semconv => ../semconv
)
