// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// LateRank returns the finding that each of the other ranks of a job waits for one, for this part
// of a time. of is 0 if that time is unknown. Live telemetry, compared profiles and reports state
// late ranks by this function, so that they have the same subject, gain and share; the chain and
// the evidence state how each knows.
func LateRank(rank int64, late, of time.Duration, threshold float64, sure Certainty) Finding {
	f := New(semconv.GPUFindingKindLateRank, sure)
	f.Subject, f.Gain, f.Threshold = fmt.Sprintf("rank %d", rank), late, threshold
	if of > 0 {
		f.Share = float64(late) / float64(of)
	}
	return f
}
