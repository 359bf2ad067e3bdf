// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/config/memorylimitconverter"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
)

// waitingSpans is the formula of docs/operating.md: spans wait for settle and a second of
// transport, and arrive in bursts.
func waitingSpans(rate float64, cfg *gpujoinprocessor.Config) float64 {
	return rate * (cfg.Settle.Seconds() + 1) * 1.25
}

const spanBytes = 375 // as OTLP protobuf

// The rows of the table in docs/operating.md follow from the formula next to it and the default of
// settle.
func TestSizesOfTheQueueAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	cfg := gpujoinprocessor.NewFactory().CreateDefaultConfig().(*gpujoinprocessor.Config)
	assert.Contains(t, string(doc), "| GPU spans per second, `settle: "+cfg.Settle.String()+"` |")
	for rate, text := range map[float64]string{5000: "5,000", 20_000: "20,000", 50_000: "50,000", 100_000: "100,000"} {
		n := waitingSpans(rate, cfg)
		spans := fmt.Sprintf("%.0f", n)
		spans = spans[:len(spans)-3] + "," + spans[len(spans)-3:]
		row := fmt.Sprintf("| %s | %.0f MiB | %s | %.0f MB |", text, math.Ceil(n*spanBytes/(1<<20)), spans,
			n/1.25*gpujoinprocessor.HeldSpanBytes/1e6)
		assert.Contains(t, string(doc), row)
	}
}

// 100,000 spans per second fit into the defaults, and one and a half times their heap into the
// memory_limiter.
func TestDefaultsHoldAHundredThousandSpansPerSecond(t *testing.T) {
	cfg := gpujoinprocessor.NewFactory().CreateDefaultConfig().(*gpujoinprocessor.Config)
	n := waitingSpans(100_000, cfg)
	assert.LessOrEqual(t, int64(n*spanBytes), cfg.Queue.Size)
	assert.LessOrEqual(t, int64(n), int64(cfg.MaxSpans))
	heap := int64(n/1.25*gpujoinprocessor.HeldSpanBytes + 40e6 + 8*17e6/8) // with samples of eight devices
	for _, name := range config.Names() {
		text, err := config.YAML(name)
		require.NoError(t, err)
		var conf map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &conf))
		if processors := conf["processors"].(map[string]any); processors["gpu_join"] != nil {
			if soft := memorylimitconverter.RefusesFrom(conf); soft > 0 && name != "profiles" { // for lower rates
				assert.LessOrEqual(t, heap/2*3, soft, "the memory_limiter of %s", name)
			}
		}
	}
}
