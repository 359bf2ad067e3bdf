// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package facts provides the values of a device, a step or a comparison of profiles that rules
// judge.
//
// A [Device] takes the activities of one device in the order of their starts. Every nanosecond from
// the first start to the last end is one of
//
//	computing              a kernel that is no collective runs (communication and copies beside it are hidden)
//	exposed communication  else a collective runs
//	exposed copying        else a copy, a memset or a page migration runs
//	idle                   else, with exactly one cause of package timeline
//
// so that the parts add up to the window. [Device.Report] returns the sums that users see; [Totals]
// has the other values that rules need. Package facts imports timeline and is imported by rules,
// never the other way.
package facts
