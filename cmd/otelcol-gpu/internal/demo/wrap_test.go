// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
)

func TestTextsAroundTheTableFitTheTerminal(t *testing.T) {
	const intro = "Simulated GPUs, because there is no CUDA device on this machine.\n" +
		"A training job has 4 GPUs and shares the first with an inference service, for 30s. Press Ctrl-C to stop.\n" +
		"Live page: http://127.0.0.1:9465\n\n"
	var end strings.Builder
	require.NoError(t, epilogue(&end, files{Trace: "otelgpu-demo/trace.json.gz", Spans: "s.json", Metrics: "m.json", OTLP: true}, 80))
	screen := frame(intro, summarytable.New(), summarytable.Format{Width: 80, Height: 40})
	for _, code := range []string{home, eraseLine, eraseBelow} {
		screen = strings.ReplaceAll(screen, code, "")
	}
	for _, text := range []string{wrap(intro, 80), end.String(), screen} {
		require.NotEmpty(t, strings.TrimSpace(text))
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), 80, line)
		}
	}
	require.Contains(t, end.String(), "\n    the spans as OTLP JSON", "the indentation is kept")
	require.Equal(t, intro, wrap(intro, 0), "any width")
}
