// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/config/memorylimitconverter"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
)

// The rows of the table in docs/operating.md follow from the formula next to it.
func TestSizeIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	for _, row := range []struct {
		spans                float64
		queueMiB, heldMB, of int64
		text                 string
	}{
		{5000, 16, 13, 43_750, "| 5,000 | 16 MiB | 43,750 | 13 MB |"},
		{20_000, 63, 53, 175_000, "| 20,000 | 63 MiB | 175,000 | 53 MB |"},
		{50_000, 157, 133, 437_500, "| 50,000 | 157 MiB | 437,500 | 133 MB |"},
		{100_000, 313, 266, 875_000, "| 100,000 | 313 MiB | 875,000 | 266 MB |"},
	} {
		s := load{spans: row.spans, bytes: 375, settle: 6 * time.Second}.size()
		assert.InDelta(t, row.queueMiB, float64(s.queue)/(1<<20), 1)
		assert.Equal(t, row.of, s.maxSpans)
		assert.InDelta(t, row.heldMB, float64(s.held)/1e6, 1)
		assert.Contains(t, string(doc), row.text)
	}
}

// 100,000 spans per second fit into the defaults.
func TestDefaultsHoldAHundredThousandSpansPerSecond(t *testing.T) {
	cfg := gpujoinprocessor.NewFactory().CreateDefaultConfig().(*gpujoinprocessor.Config)
	s := load{spans: 100_000, bytes: 375, devices: 8, settle: cfg.Settle}.size()
	assert.LessOrEqual(t, s.queue, cfg.Queue.Size)
	assert.LessOrEqual(t, s.maxSpans, int64(cfg.MaxSpans))
	for _, name := range config.Names() {
		text, err := config.YAML(name)
		require.NoError(t, err)
		var conf map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &conf))
		if processors := conf["processors"].(map[string]any); processors["gpu_join"] != nil {
			if soft := memorylimitconverter.RefusesFrom(conf); soft > 0 && name != "profiles" { // for lower rates
				assert.LessOrEqual(t, s.limit(), soft, "the memory_limiter of %s", name)
			}
		}
	}
}

func TestSizeCommand(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := newSizeCommand()
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.Execute()
		return out.String(), err
	}
	out, err := run("--spans", "50000", "--devices", "8")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "gpu_join:\n  queue:\n    size: 164626432    # 157 MiB\n  max_spans: 437500\n"), out)
	for _, c := range []struct{ flag, value, want string }{
		{"--spans", "0", "--spans must be a positive number of GPU spans per second, found 0"},
		{"--span-bytes", "NaN", "--span-bytes must be a positive number, found NaN"},
		{"--devices", "-1", "--devices must not be negative, found -1"},
		{"--settle", "-1s", "--settle must not be negative, found -1s"},
		{"--span-bytes", "1e30", "the load is too large for one Collector (lower --spans or --span-bytes)"},
	} {
		_, err := run("--spans", "1", c.flag, c.value)
		assert.EqualError(t, err, c.want)
	}
}
