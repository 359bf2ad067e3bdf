// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package spanid generates the IDs of spans and reserves them before the spans exist.
package spanid
