// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package stepcsv writes one CSV row for each recorded step of a training loop.
//
// # Format
//
// A header, then one line for each step. Times are milliseconds with six decimals, so exact to the nanosecond.
//
//	step          number of the step, from 1
//	epoch         empty when not stated
//	t_data_ms     waiting for the loader and copying to the device (phase data)
//	t_fwd_ms      forward pass (phase forward)
//	t_bwd_ms      backward pass (phase backward)
//	t_opt_ms      weight update (phase optimizer)
//	t_comm_ms     communication between ranks (phase comm)
//	t_overlap_ms  sum of the phases minus their union
//	t_misc_ms     what belongs to no phase
//	t_step_ms     boundary to boundary on the device
//	ips_step      items of the step divided by t_step; empty when no items are stated
//	t_<phase>_ms  one column for each further declared phase, also where it is empty
//
// In every row t_step = sum of the phases − t_overlap + t_misc holds to the last digit. A phase that a step did not
// have is empty, and so is everything that is not known. A phase that was not declared has no column: its time counts
// as t_misc, and is counted.
//
// # Appending
//
// A file that exists is continued when its header has the same columns. A last line without its end, as a crash leaves
// it, is cut off first. A file with other columns is never touched: opening it is an error.
package stepcsv
