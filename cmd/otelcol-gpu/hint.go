// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
)

//go:embed builder-full.yaml
var fullBuild string

var unknownType = regexp.MustCompile(`'(extension|receiver|processor|exporter|connector)s' unknown type: "(\w+)"`)

// withHint adds what to do to an error of the Collector that names only what went wrong.
func withHint(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (another program listens there: stop it, or choose another address in the configuration or, "+
			"for the ready pipelines, by the environment variables that \"otelcol-gpu config all-in-one\" lists)", err)
	}
	if err == nil {
		return nil
	}
	for _, m := range unknownType.FindAllStringSubmatch(err.Error(), -1) {
		if !strings.Contains(fullBuild, "/"+strings.ReplaceAll(m[2], "_", "")+m[1]+" ") {
			continue
		}
		how := `"make build-full" makes it: cmd/otelcol-gpu/build/otelcol-gpu-full`
		if m[1] == "processor" && (m[2] == "filter" || m[2] == "transform" || m[2] == "tail_sampling") {
			how += `; or "go build -tags ottl ./cmd/otelcol-gpu"`
		}
		return fmt.Errorf("%w (the %s %q is in the full build: %s)", err, m[1], m[2], how)
	}
	return err
}
