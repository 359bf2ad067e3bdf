// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package instrument models what a device's instruments really report, so that values between
// readings have a stated uncertainty. Each instrument is one type:
//
//	Staircase  decides which readings of a counter are measurements: a repeated value is none
//	tracker    places the changes of a counter in time: a value belongs to some time in a window before its reading
//	power      integrates readings that are trailing means
//	Energy     the energy curve of a device from both: a counter's increase, distributed by power, with an error bound
//
// The estimators and the constants of the bounds come from a simulation with known power, which the
// tests repeat. Times are Unix nanoseconds at the exported interface and seconds since the first
// reading inside.
package instrument
