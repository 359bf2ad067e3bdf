// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package timeline

import "time"

// ThreadCPU is not known here.
func ThreadCPU() (time.Duration, bool) { return 0, false }
