// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package memorylimitconverter

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

func limiter(settings map[string]any) map[string]any {
	return map[string]any{"processors": map[string]any{"memory_limiter/a": settings, "batch": map[string]any{}}}
}

func TestMemoryLimitForRejectingData(t *testing.T) {
	assert.EqualValues(t, 896<<20, RefusesFrom(limiter(map[string]any{"limit_mib": 1024, "spike_limit_mib": 128})))
	assert.EqualValues(t, 800<<20, RefusesFrom(limiter(map[string]any{"limit_mib": 1000})), "a fifth is the default")
	assert.Zero(t, RefusesFrom(limiter(map[string]any{"limit_percentage": 75})))
	assert.Zero(t, RefusesFrom(limiter(nil)))
	assert.Zero(t, RefusesFrom(nil))
	two := limiter(map[string]any{"limit_mib": 1024, "spike_limit_mib": 24})
	two["processors"].(map[string]any)["memory_limiter"] = map[string]any{"limit_mib": 600, "spike_limit_mib": 100}
	assert.EqualValues(t, 500<<20, RefusesFrom(two), "the strictest")
}

func TestGarbageIsCollectedBeforeDataIsRefused(t *testing.T) {
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	c := NewFactory().Create(confmap.ConverterSettings{})
	conf := confmap.NewFromStringMap(limiter(map[string]any{"limit_mib": 1024, "spike_limit_mib": 128}))

	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "1GiB")
	require.NoError(t, c.Convert(t.Context(), conf))
	assert.Equal(t, old, debug.SetMemoryLimit(-1), "the user's setting is kept")

	require.NoError(t, os.Unsetenv("GOMEMLIMIT")) // t.Setenv restores it
	require.NoError(t, c.Convert(t.Context(), conf))
	assert.EqualValues(t, int64(896<<20)/20*19, debug.SetMemoryLimit(-1))
}

func TestSmallHeapGrowsBeforeGarbageIsCollected(t *testing.T) {
	old := debug.SetGCPercent(100)
	defer debug.SetGCPercent(old)
	percent := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	c, conf := NewFactory().Create(confmap.ConverterSettings{}), confmap.NewFromStringMap(nil)
	t.Setenv("GOGC", "100")
	require.NoError(t, c.Convert(t.Context(), conf))
	assert.EqualValues(t, 100, percent(), "the user's setting is kept")

	require.NoError(t, os.Unsetenv("GOGC")) // t.Setenv restores it
	require.NoError(t, c.Convert(t.Context(), conf))
	assert.Greater(t, percent(), uint64(100))
}

func TestTheConfigurationIsNotChanged(t *testing.T) {
	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "1GiB")
	settings := limiter(map[string]any{"limit_mib": 1024, "spike_limit_mib": 128})
	conf := confmap.NewFromStringMap(settings)
	require.NoError(t, NewFactory().Create(confmap.ConverterSettings{}).Convert(t.Context(), conf))
	assert.Equal(t, limiter(map[string]any{"limit_mib": 1024, "spike_limit_mib": 128}), conf.ToStringMap())
}
