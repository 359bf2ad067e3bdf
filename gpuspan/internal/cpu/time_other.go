// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cpu

import "time"

// ThreadTime returns false, because the value is not available on this system.
func ThreadTime() (time.Duration, bool) { return 0, false }
