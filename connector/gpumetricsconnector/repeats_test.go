// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Without a preceding gpu_join, as in a gateway, a sender that misses a response sends counted
// spans again, possibly in other requests. They count once; with `max_spans: 0`, every time.
func TestResentSpansAreCountedOnce(t *testing.T) {
	for _, remembered := range []int{createDefaultConfig().(*Config).MaxSpans, 0} {
		a := newTest(t, func(c *Config) { c.MaxSpans = remembered })
		one := span{name: "p", start: 1000, end: 3000, a: prefill, id: 1}
		two := span{name: "p", start: 4000, end: 6000, a: prefill, id: 2}
		step := span{name: "train", start: 0, end: 9000, id: 3, a: attrs{
			"gpu.operation.type": "step", "gpu.step.duration": 0.009, "gpu.step.items": 7,
		}}
		a.take(batch(t, attrs{"service.name": "llm"}, one, step), clock)
		a.take(batch(t, attrs{"service.name": "llm"}, one, two, step), clock)
		a.take(batch(t, attrs{"service.name": "llm"}, two, one), clock)
		got := values(t, output(t, a, clock))
		if remembered == 0 {
			assert.EqualValues(t, 7, a.stats.spans)
			continue
		}
		assert.EqualValues(t, 3, a.stats.spans)
		assert.EqualValues(t, 4, a.stats.repeated)
		for k, v := range prefillPoints {
			assert.Equal(t, v, got[k], k)
		}
		assert.Equal(t, "1 in 0.009", got["gpu.step.duration[gpu.operation.name:train]"])
	}
}
