// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import "go.uber.org/zap"

// refusal logs that the next component refuses what it is given, and that it takes it again, but not each time. Of one goroutine.
type refusal struct {
	what  string // in the plural
	lasts bool
}

// note takes what became of n things.
func (r *refusal) note(log *zap.Logger, n int, err error) {
	switch {
	case err != nil && !r.lasts:
		log.Warn(r.what+" are refused; further refusals are counted, not logged", zap.Int("count", n), zap.Error(err))
	case err == nil && r.lasts:
		log.Info(r.what + " are taken again")
	}
	r.lasts = err != nil
}
