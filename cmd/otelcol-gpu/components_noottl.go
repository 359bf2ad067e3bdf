// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !ottl

package main

import "go.opentelemetry.io/collector/processor"

func ottlProcessors() []part[processor.Factory] { return nil }
