// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package heldoutjobs simulates GPU jobs with planted losses and writes their profiles in three
// styles. It measures the findings of the analysis on jobs that were not used to write its rules.
//
// The true cause is known by construction: a job runs twice, with and without its cause, and the
// loss is the difference of the two windows. The simulation knows hosts that run ahead of devices,
// streams, events, process groups and the files that PyTorch and Nsight Systems write. It imports
// nothing of the analysis. Parameters are drawn from a seed; never adjust a job or a seed to a
// rule.
package heldoutjobs
