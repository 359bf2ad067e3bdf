// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package memorylimitconverter sets Go's memory limit from the memory_limiter of a configuration,
// and lets small heaps grow before garbage is collected. It is a converter of configurations, which
// it does not change, so that the OpenTelemetry Collector Builder can add it to any Collector
// (`converters` in the manifest).
package memorylimitconverter

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/gcpace"
)

type converter struct{}

// NewFactory returns the factory of the converter.
func NewFactory() confmap.ConverterFactory {
	return confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return converter{} })
}

// smallHeap is the size in bytes that the heap reaches before garbage is collected. An agent that
// only reads devices keeps 5 MB; with Go's default it collects every other second, which is a
// seventh of its CPU time.
const smallHeap = 24 << 20

var paceCollections = sync.OnceFunc(func() { gcpace.Start(smallHeap, 100) })

// Convert sets Go's memory limit to 95 % of the memory from which on the memory_limiter of the
// configuration refuses data. Without it the garbage collector lets the heap grow to twice the live
// memory, and the limiter refuses spans although most of the heap is garbage. GOMEMLIMIT takes
// precedence, and GOGC over smallHeap.
func (converter) Convert(_ context.Context, conf *confmap.Conf) error {
	if _, set := os.LookupEnv("GOGC"); !set {
		paceCollections()
	}
	if _, set := os.LookupEnv("GOMEMLIMIT"); set {
		return nil
	}
	if soft := RefusesFrom(conf.ToStringMap()); soft > 0 {
		debug.SetMemoryLimit(soft / 20 * 19)
	}
	return nil
}

// RefusesFrom returns the heap size in bytes at which the strictest memory_limiter starts to refuse
// data, or 0 if none has a limit in MiB. The default spike limit is a fifth of the limit.
func RefusesFrom(conf map[string]any) int64 {
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
