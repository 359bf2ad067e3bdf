// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"strings"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/sampling"
)

// AdjustedCount returns how many spans one sampled span represents, by the rejection threshold of
// its trace state (`ot=th:c` means that 12/16 were not sampled, so it represents 4). It returns 1
// and false without a threshold or for an invalid one.
func AdjustedCount(traceState string) (n float64, ok bool) {
	if !strings.Contains(traceState, "ot=") {
		return 1, false
	}
	w3c, err := sampling.NewW3CTraceState(traceState)
	if err != nil {
		return 1, false
	}
	if n = w3c.OTelValue().AdjustedCount(); n >= 1 {
		return n, true
	}
	return 1, false // 0: no threshold
}
