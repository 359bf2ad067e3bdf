// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build headers

package dcgmsource

// The tests use NVIDIA's headers in this module; nothing is linked with it.
import _ "github.com/NVIDIA/go-dcgm/pkg/dcgm"
