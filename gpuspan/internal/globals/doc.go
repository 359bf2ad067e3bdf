// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package globals holds a test that sets OpenTelemetry's global providers, which a process can do only once.
package globals
