// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// Each request of the recordings counts once, with the tokens and the model of whichever span of
// its trace has them, and with what a gateway knows. A span of the worker that lasts as long as the
// request has 100 J.
func TestRecordedServersBehindFrontends(t *testing.T) {
	for file, tt := range map[string]struct {
		span   string // of the request's time
		tokens float64
		first  float64 // largest time to the first token, s
	}{
		"dynamo-1.6.1-serve_endpoint": {"handle_payload", 60, 0.1},
		"dynamo-1.6.1-common-backend": {"handle_payload", 60, 0.1},
		"dynamo-1.6.1-mocker":         {"handle_payload", 60, 0.1},
		"litellm-1.108.7+vllm-0.32":   {"llm_request", 60, 0.2},
		"sglang-0.5.23":               {" Req 1a2b3c4d", 45, 0.4},
		"ray-serve-2.60.0":            {"replica_handle_request Model __call__", 0, 0},
	} {
		t.Run(file, func(t *testing.T) {
			sink := new(consumertest.MetricsSink)
			f := NewFactory()
			cfg := f.CreateDefaultConfig().(*Config)
			cfg.Dimensions = []string{"gen_ai.request.model", "metadata.user_api_key_request_route"}
			path := filepath.Join("testdata", file+".otlp.jsonl")
			if _, err := os.Stat(path); err != nil {
				path = recorded.Path(t, "cases", "services", file+".otlp.jsonl")
			}
			batches := derived(t, path)
			c, err := f.CreateTracesToMetrics(t.Context(), connectortest.NewNopSettings(f.Type()), cfg, sink)
			require.NoError(t, err)
			require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
			for _, td := range batches {
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, s := range ss.Spans().All() {
							if kind, _ := s.Attributes().Get("gpu.operation.type"); kind.Str() == "request" && s.Name() == tt.span {
								s.Attributes().PutDouble("gpu.energy", 100)
							}
						}
					}
				}
				require.NoError(t, c.ConsumeTraces(t.Context(), td))
			}
			require.NoError(t, c.Shutdown(t.Context()))
			count, sum, dims := map[string]uint64{}, map[string]float64{}, map[string]any{}
			for _, md := range sink.AllMetrics() {
				for _, rm := range md.ResourceMetrics().All() {
					for _, sm := range rm.ScopeMetrics().All() {
						for _, m := range sm.Metrics().All() {
							points := m.Histogram().DataPoints()
							last := points.At(points.Len() - 1)
							count[m.Name()], sum[m.Name()] = last.Count(), last.Sum()
							dims = last.Attributes().AsRaw()
						}
					}
				}
			}
			assert.EqualValues(t, 4, count["gpu.request.energy"])
			assert.InDelta(t, 400, sum["gpu.request.energy"], 1e-9)
			assert.InDelta(t, 4*tt.tokens, sum["gpu.request.items"], 1e-9)
			assert.LessOrEqual(t, sum["gpu.request.time_to_first_item"], 4*tt.first)
			if tt.tokens == 0 {
				return
			}
			assert.EqualValues(t, 4, count["gpu.request.time_to_first_item"])
			switch tt.span {
			case "llm_request":
				assert.Equal(t, "tiny", dims["gen_ai.request.model"])
				assert.Equal(t, "/v1/chat/completions", dims["metadata.user_api_key_request_route"])
			case "handle_payload":
				assert.Contains(t, []any{"/models/tiny", "tiny"}, dims["gen_ai.request.model"])
			default:
				assert.Equal(t, "tiny", dims["gen_ai.request.model"])
				assert.EqualValues(t, 4, count["gpu.request.decode.duration"])
			}
		})
	}
}
