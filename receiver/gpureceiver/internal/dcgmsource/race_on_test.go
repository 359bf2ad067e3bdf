// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package dcgmsource

const raceEnabled = true
