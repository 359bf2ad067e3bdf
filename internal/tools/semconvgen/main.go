// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command semconvgen writes the Go package semconv and docs/semconv.md from the registry in semconv/registry.
//
//	semconvgen [-check] ROOT
//
// ROOT is the root of the repository. With -check nothing is written; the files that would change are named and the
// exit status is 1.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "name the files that are out of date instead of writing them")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: semconvgen [-check] ROOT")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		path := filepath.Join(root, f.path)
		old, err := os.ReadFile(path)
		if err == nil && bytes.Equal(old, f.data) {
			continue
		}
		if check {
			errs = append(errs, fmt.Errorf("%s is out of date (run make generate)", f.path))
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

type file struct {
	path string
	data []byte
}

func generate(root string) ([]file, error) {
	path := filepath.Join(root, "semconv", "registry")
	r, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", path, err)
	}
	attributes, err := goAttributes(r)
	if err != nil {
		return nil, err
	}
	metrics, err := goMetrics(r)
	if err != nil {
		return nil, err
	}
	tables, err := goTables(r)
	if err != nil {
		return nil, err
	}
	return []file{
		{"semconv/generated_attributes.go", attributes},
		{"semconv/generated_metrics.go", metrics},
		{"semconv/generated_tables.go", tables},
		{"docs/semconv.md", markdown(r)},
	}, nil
}
