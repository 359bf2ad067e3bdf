module github.com/otelgpu/otelgpu/internal/tools

go 1.26.7

require go.yaml.in/yaml/v3 v3.0.4
