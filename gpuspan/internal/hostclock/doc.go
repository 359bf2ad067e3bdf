// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostclock is the clock of the goroutines that start and end sections.
package hostclock
