// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command semconvgen writes the Go package semconv, the pages of docs/semconv and
// docs/finding-kinds.md from the registry in semconv/registry.
//
//	semconvgen ROOT
//
// ROOT is the root of the repository.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: semconvgen ROOT")
		os.Exit(2)
	}
	if err := run(os.Args[1], false); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// outputs are the files that are written, with their templates.
var outputs = []struct{ path, template string }{
	{"semconv/generated_attributes.go", "attributes.go.tmpl"},
	{"semconv/generated_metrics.go", "metrics.go.tmpl"},
	{"semconv/generated_tables.go", "tables.go.tmpl"},
	{"semconv/generated_findings.go", "findings.go.tmpl"},
	{"docs/semconv/README.md", "semconv.md.tmpl"},
	{"docs/semconv/resource.md", "resource.page"},
	{"docs/semconv/spans.md", "spans.page"},
	{"docs/semconv/jobs.md", "jobs.page"},
	{"docs/semconv/metrics.md", "metrics.page"},
	{"docs/semconv/logs.md", "logs.page"},
	{"docs/finding-kinds.md", "findings.md.tmpl"},
}

// run writes the files, or with check returns an error that names the files that would change.
func run(root string, check bool) error {
	registry := filepath.Join(root, "semconv", "registry")
	r, err := load(registry)
	if err != nil {
		return fmt.Errorf("cannot read %q: %w", registry, err)
	}
	var errs []error
	for _, f := range outputs {
		data, err := render(f.template, r)
		if err != nil {
			return err
		}
		path := filepath.Join(root, f.path)
		switch old, err := os.ReadFile(path); {
		case err == nil && bytes.Equal(old, data):
		case check:
			errs = append(errs, fmt.Errorf("%s is out of date (run make generate)", f.path))
		default:
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}
