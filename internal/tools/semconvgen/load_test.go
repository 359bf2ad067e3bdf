// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

func loaded(t *testing.T) *registry {
	t.Helper()
	r, err := load("../../../semconv/registry")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Weaver resolves the references into OpenTelemetry's registry, which it downloads unless OTEL_SEMCONV_MODEL names the
// folder `model` of a copy of github.com/open-telemetry/semantic-conventions.
func TestWeaverAcceptsTheRegistry(t *testing.T) {
	weaver, err := exec.LookPath("weaver")
	if err != nil {
		t.Skip("skipped: weaver is not installed (https://github.com/open-telemetry/weaver)")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../../semconv/registry")); err != nil {
		t.Fatal(err)
	}
	if model := os.Getenv("OTEL_SEMCONV_MODEL"); model != "" {
		path := filepath.Join(dir, "manifest.yaml")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b = regexp.MustCompile(`registry_path: .*`).ReplaceAll(b, []byte("registry_path: "+model))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), weaver, "registry", "check", "-r", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
