// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpucapturereceiver

import "github.com/otelgpu/otelgpu/internal/gputrace"

// Result says what became of one window.
type Result struct {
	gputrace.Stats
	Outcome  string           // recorded, budget, or why there is nothing
	Records  int64            // activities of the device that were read
	Dropped  map[string]int64 // what was lost, by reason
	Message  string           // of a refused window, for people
	Remark   string           // of a recorded window, for people
	Attached int64            // activities below a live span
}
