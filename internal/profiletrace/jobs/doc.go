// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs compares the ranks of one job by their profiles: which rank is the straggler at the
// collectives, by how much, and its activity during that time.
//
// Lateness is computed from the arrivals of ranks at the collectives that they run together
// (package straggler), so that a waiting rank is never mistaken for a working one. If clocks cannot
// be aligned, it is computed from how long ranks run the collectives, since the last rank runs them
// shortest; if no collectives match, from how long each rank communicates in all. Without
// collectives, steps without exposed communication are compared.
package jobs
