// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package section

import "time"

// ThreadCPU returns false, because the value is not available on this system.
func ThreadCPU() (time.Duration, bool) { return 0, false }
