// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/gputrace"
)

// maxTold bounds the reasons that are logged.
const maxTold = 100

// Remarks logs what became of files, and each reason for leaving something out once for all files.
type Remarks struct {
	log  *zap.Logger
	what string // that a file consists of: events, rows
	told map[string]bool
}

// NewRemarks makes Remarks; what is the plural of what a file consists of.
func NewRemarks(log *zap.Logger, what string) *Remarks {
	return &Remarks{log: log, what: what, told: map[string]bool{}}
}

// Read logs a file that was read: n parts, of which some were skipped by reason, and faults in what it says of itself.
func (r *Remarks) Read(file string, n int64, st gputrace.Stats, skipped map[string]int64, faults []string) {
	for why, count := range skipped {
		if !r.told[why] && len(r.told) < maxTold {
			r.told[why] = true
			r.log.Warn(r.what+" left out; further files are only counted", zap.String("file", file), zap.String("reason", why),
				zap.Int64(r.what, count))
		}
	}
	if len(faults) > 0 {
		r.log.Warn("parts of the file not used", zap.String("file", file),
			zap.Strings("faults", slices.Sorted(slices.Values(faults))))
	}
	if st.Host != nil {
		r.log.Warn("no activity of a device in the file", zap.String("file", file), zap.Stringer("finding", st.Host))
	}
	r.log.Info("file read", zap.String("file", file), zap.Int64(r.what, n), zap.Int64("spans", st.Spans),
		zap.Int64("cut", st.Cut))
}
