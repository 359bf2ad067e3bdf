// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package freshjobs holds tests: profiles of jobs whose most expensive cause is known because a
// simulator put it there. Their author had read the names of the kinds of findings and no rule, and
// they were run once before anybody saw a result.
package freshjobs
