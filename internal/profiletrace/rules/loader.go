// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// loader returns the name of the range with the longest wait for data.
func (j *judge) loader() string {
	times := map[uint32]int64{}
	for _, s := range j.account.Spent {
		if s.At.Cause == timeline.CauseLoader {
			times[s.At.Name] += s.Time
		}
	}
	return j.f.Name(boundedmap.Largest(times))
}
