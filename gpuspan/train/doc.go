// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package train times loops whose iterations are steps, as those of a training run: each step is a span with its
// phases, what they overlap and what no phase explains. A schedule says which steps are recorded.
package train
