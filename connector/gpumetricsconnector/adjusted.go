// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strconv"
	"strings"
)

// adjustedCount is how many spans one sampled span stands for, by the rejection threshold of its trace state
// (`ot=th:c` means that 12/16 were not sampled, so it stands for 4). 1 without one. Source: OpenTelemetry, TraceState
// probability sampling: th is up to 14 hexadecimal digits of a 56-bit number T, trailing zeros left out; the adjusted count is 2^56 / (2^56 − T).
func adjustedCount(traceState string) float64 {
	if traceState == "" {
		return 1
	}
	for member := range strings.SplitSeq(traceState, ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(member), "ot=")
		if !ok {
			continue
		}
		for field := range strings.SplitSeq(value, ";") {
			if th, ok := strings.CutPrefix(field, "th:"); ok {
				return fromThreshold(th)
			}
		}
		return 1
	}
	return 1
}

func fromThreshold(th string) float64 {
	if len(th) < 1 || len(th) > 14 {
		return 1
	}
	t, err := strconv.ParseUint(th, 16, 64)
	if err != nil {
		return 1
	}
	t <<= 4 * (14 - len(th))
	return float64(1<<56) / float64(1<<56-t)
}
