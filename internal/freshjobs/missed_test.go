// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

// missed are the first findings that are wrong, by job.
var missed = map[string]string{
	// Gaps of 0.8 µs between the kernels of a graph add up to 5.9 %.
	"server_decoding_with_graphs_under_load_1": "launch_bound",
	// The environment takes longer than the copy before it, in whose wait the time is counted.
	"rollouts_that_step_an_environment_0": "synchronization",
	// By chance one of eight ranks is last in 4 of 8 steps (p = 0.044).
	"ranks_ranks_that_vary_alike_1": "late_rank",
}
