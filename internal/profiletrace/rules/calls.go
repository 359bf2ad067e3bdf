// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

func (j *judge) calls(c timeline.Cause, kind, what string) {
	n := j.account.Idles[c]
	if n == 0 {
		return
	}
	v := j.idled(c, kind, finding.High, what)
	var most, frees, mallocs int64
	for _, s := range j.account.Spent {
		if s.At.Cause != c {
			continue
		}
		most = max(most, s.Most)
		if name := j.f.Name(s.At.Name); !strings.Contains(j.f.Name(s.At.In&^timeline.InnerName), "::") {
			continue
		} else if timeline.Contains(name, "Free", "MemUnmap", "MemRelease") {
			frees += s.Count
		} else {
			mallocs += s.Count
		}
	}
	if c == timeline.CauseAllocation && min(frees, mallocs) >= manyRetries {
		v.Chain[0] = "the framework's allocator released memory and allocated it again, as it does at the limit of the " +
			"device's memory"
		v.Remedy = "smaller batches, activation checkpointing, expandable segments, no empty_cache in the loop"
		if m := j.f.Memory.Highest; m > 0 {
			v.Evidence += fmt.Sprintf("; tensors had %s at most", finding.Held(m))
		}
	}
	if 2*most > n {
		v.Evidence += fmt.Sprintf("; one call took %s, as a first one does", finding.Duration(most))
	}
	j.add(v)
}
