// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package errreport passes errors to the application, at most one of a kind in ten seconds.
package errreport
