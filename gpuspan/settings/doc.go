// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package settings holds what can be set of a profiler from outside the code: by environment variables ([FromEnv]),
// flags ([Settings.Bind]) or by name ([Settings.Set], as package gpuspanyaml does). One table, [Keys], is behind all of
// them.
package settings
