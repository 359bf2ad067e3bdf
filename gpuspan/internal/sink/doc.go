// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sink is the contract between package export and sinks that accept spans without an SDK,
// such as package otlp.
package sink
