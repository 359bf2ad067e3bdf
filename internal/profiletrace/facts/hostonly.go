// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
)

// HostOnly is where the host's time went, in a profile without activities of a device. Each moment
// belongs to the innermost range, within a loader to the loader.
type HostOnly struct {
	Partial bool               // only a part of the profile could be read
	Time    time.Duration      // for which the busiest thread was in ranges
	Loader  time.Duration      // of that, in data loaders
	Where   []finding.Location // the longest of the busiest thread
	Other   finding.Location   // the longest of another thread that does not only wait; Time 0: none
}
