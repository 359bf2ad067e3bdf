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

// Weaver resolves the references into OpenTelemetry's registry, which it downloads unless
// OTEL_SEMCONV_MODEL is the folder `model` of a copy of
// github.com/open-telemetry/semantic-conventions. OTEL_WEAVER_POLICIES names the folder
// `policies/check` of a copy of github.com/open-telemetry/opentelemetry-weaver-packages, whose
// policies are checked, too.
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
	args := [][]string{{}}
	if policies := os.Getenv("OTEL_WEAVER_POLICIES"); policies != "" {
		files, err := filepath.Glob(filepath.Join(policies, "*", "*.rego"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no policies in %q (%v)", policies, err)
		}
		for _, file := range files {
			args = append(args, []string{"--v2", "-p", filepath.Dir(file)})
		}
	}
	for _, extra := range args {
		extra = append([]string{"registry", "check", "-r", dir}, extra...)
		if out, err := exec.CommandContext(t.Context(), weaver, extra...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", extra, err, out)
		}
	}
}
