// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"runtime/debug"
	"strings"

	"go.opentelemetry.io/collector/confmap"
)

// collectEarlier sets Go's memory limit to nine tenths of the memory from which on the memory_limiter of the
// configuration refuses data. Without it the garbage collector lets the heap grow to twice the live memory, and the
// limiter refuses spans for the sake of garbage. GOMEMLIMIT takes precedence.
func collectEarlier(conf *confmap.Conf) {
	if _, set := os.LookupEnv("GOMEMLIMIT"); set {
		return
	}
	if soft := refusesFrom(conf.ToStringMap()); soft > 0 {
		debug.SetMemoryLimit(soft / 10 * 9)
	}
}

// refusesFrom returns the heap size in bytes at which the strictest memory_limiter starts to refuse data, or 0 if none
// has a limit in MiB. The default spike limit is a fifth of the limit.
func refusesFrom(conf map[string]any) int64 {
	const mib = 1 << 20
	soft := int64(math.MaxInt64)
	processors, _ := conf["processors"].(map[string]any)
	for id, p := range processors {
		if kind, _, _ := strings.Cut(id, "/"); kind != "memory_limiter" {
			continue
		}
		settings, _ := p.(map[string]any)
		limit, _ := settings["limit_mib"].(int)
		spike, _ := settings["spike_limit_mib"].(int)
		if spike <= 0 {
			spike = limit / 5
		}
		if limit > spike {
			soft = min(soft, int64(limit-spike)*mib)
		}
	}
	if soft == math.MaxInt64 {
		return 0
	}
	return soft
}
