// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/delivery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func warnings(t *testing.T, text string) []string {
	t.Helper()
	var conf map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &conf))
	return delivery.Warnings(conf)
}

func TestTheReadyPipelinesNeitherLoseNorRepeat(t *testing.T) {
	for _, name := range config.Names() {
		text, err := config.YAML(name)
		require.NoError(t, err)
		assert.Empty(t, warnings(t, text), name)
	}
}

const (
	again = "pipeline traces: when %s rejects spans, the pipeline's other exporters and connectors receive them again " +
		"(set `exporters::%[1]s::sending_queue::block_on_overflow` to true)"
	dropped = "pipeline traces: %s drops spans that its destination does not accept for a while " +
		"(set `exporters::%[1]s::retry_on_failure` to {enabled: true, max_elapsed_time: 0s})"
	files = "pipeline traces: when %s rejects spans, the pipeline's other exporters and connectors receive them again " +
		"(set `exporters::%[1]s::sending_queue::block_on_overflow` to true and `exporters::%[1]s::retry_on_failure` to " +
		"{enabled: true, max_elapsed_time: 0s})"
	buffered = "pipeline traces: batch drops spans that otlp_http rejects " +
		"(set `exporters::otlp_http::sending_queue::block_on_overflow` to true)"
	join = "pipeline traces: gpu_join drops spans that the next component rejects " +
		"(set `processors::gpu_join::retry_on_failure` to {enabled: true, max_elapsed_time: 0s})"
)

func TestWarningsNameTheSetting(t *testing.T) {
	const safe = "{sending_queue: {block_on_overflow: true}, retry_on_failure: {max_elapsed_time: 0s}}"
	for name, tt := range map[string]struct {
		join, processors, otlp, chrome, exporters string
		want                                      []string
	}{
		"one exporter with its defaults": {otlp: "{}", exporters: "otlp_http", want: []string{fmt.Sprintf(dropped, "otlp_http")}},
		"which retries forever":          {otlp: "{retry_on_failure: {max_elapsed_time: 0}}", exporters: "otlp_http"},
		"beside a connector": {
			otlp: "{}", exporters: "otlp_http, gpu_metrics",
			want: []string{fmt.Sprintf(again, "otlp_http"), fmt.Sprintf(dropped, "otlp_http")},
		},
		"without a queue":                      {otlp: "{sending_queue: {enabled: false}}", exporters: "otlp_http"},
		"that blocks and retries":              {otlp: safe, exporters: "otlp_http, gpu_metrics, debug"},
		"that retries for an hour":             {otlp: "{retry_on_failure: {max_elapsed_time: 1h}}", exporters: "otlp_http", want: []string{fmt.Sprintf(dropped, "otlp_http")}},
		"that does not retry":                  {otlp: "{retry_on_failure: {enabled: false}}", exporters: "otlp_http", want: []string{fmt.Sprintf(dropped, "otlp_http")}},
		"through a forward connector":          {otlp: "{}", exporters: "forward, debug", want: []string{fmt.Sprintf(again, "otlp_http"), fmt.Sprintf(dropped, "otlp_http")}},
		"a file beside it":                     {otlp: safe, chrome: "{path: x}", exporters: "otlp_http, chrome_trace", want: []string{fmt.Sprintf(files, "chrome_trace")}},
		"a file that waits":                    {otlp: safe, chrome: "{sending_queue: {block_on_overflow: true}, retry_on_failure: {enabled: true, max_elapsed_time: 0s}}", exporters: "otlp_http, chrome_trace"},
		"a file alone":                         {chrome: "{path: x}", exporters: "chrome_trace"},
		"the batch processor behind gpu_join":  {processors: ", batch", otlp: "{retry_on_failure: {max_elapsed_time: 0s}}", exporters: "otlp_http", want: []string{buffered}},
		"retries of gpu_join that end":         {join: "{retry_on_failure: {max_elapsed_time: 1m}}", otlp: safe, exporters: "otlp_http", want: []string{join}},
		"gpu_join without retries":             {join: "{retry_on_failure: {enabled: false}}", otlp: safe, exporters: "otlp_http", want: []string{join}},
		"an exporter that nothing is known of": {exporters: "custom, debug"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.join == "" {
				tt.join = "{}"
			}
			assert.Equal(t, tt.want, warnings(t, fmt.Sprintf(`
processors: {gpu_join: %s, batch: }
connectors: {gpu_metrics: , forward: }
exporters: {otlp_http: %s, chrome_trace: %s, debug: , custom: }
service:
  pipelines:
    traces: {receivers: [otlp], processors: [gpu_join%s], exporters: [%s]}
    traces/behind: {receivers: [forward], exporters: [otlp_http]}
    traces/unrelated: {receivers: [otlp], exporters: [otlp_http, debug]}
`, tt.join, tt.otlp, tt.chrome, tt.processors, tt.exporters)))
		})
	}
	assert.Empty(t, warnings(t, "service:"), "an incomplete configuration is reported by the Collector")
}
