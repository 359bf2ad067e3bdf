// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package servermetrics reads the metrics of inference servers: how many requests run, and how many
// tokens were computed. The catalogue states what each metric means; no other package knows the
// names.
package servermetrics
