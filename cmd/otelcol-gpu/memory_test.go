// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/confmap"
)

func limiter(settings map[string]any) map[string]any {
	return map[string]any{"processors": map[string]any{"memory_limiter/a": settings, "batch": map[string]any{}}}
}

func TestMemoryFromWhichOnDataIsRefused(t *testing.T) {
	assert.EqualValues(t, 896<<20, refusesFrom(limiter(map[string]any{"limit_mib": 1024, "spike_limit_mib": 128})))
	assert.EqualValues(t, 800<<20, refusesFrom(limiter(map[string]any{"limit_mib": 1000})), "a fifth is the default")
	assert.Zero(t, refusesFrom(limiter(map[string]any{"limit_percentage": 75})))
	assert.Zero(t, refusesFrom(limiter(nil)))
	assert.Zero(t, refusesFrom(nil))
	two := limiter(map[string]any{"limit_mib": 1024, "spike_limit_mib": 24})
	two["processors"].(map[string]any)["memory_limiter"] = map[string]any{"limit_mib": 600, "spike_limit_mib": 100}
	assert.EqualValues(t, 500<<20, refusesFrom(two), "the strictest")
}

func TestGarbageIsCollectedBeforeDataIsRefused(t *testing.T) {
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	conf := confmap.NewFromStringMap(limiter(map[string]any{"limit_mib": 1024, "spike_limit_mib": 128}))

	t.Setenv("GOMEMLIMIT", "1GiB")
	collectEarlier(conf)
	assert.Equal(t, old, debug.SetMemoryLimit(-1), "what the user sets holds")

	assert.NoError(t, os.Unsetenv("GOMEMLIMIT")) // t.Setenv restores it
	collectEarlier(conf)
	assert.EqualValues(t, int64(896<<20)/10*9, debug.SetMemoryLimit(-1))
}
