// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
)

func load(t *testing.T) *registry {
	t.Helper()
	b, err := os.ReadFile("../../../semconv/registry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
