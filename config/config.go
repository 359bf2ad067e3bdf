// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package config contains the ready pipelines of the distribution as YAML, so that they can be run,
// printed and tested exactly as documented.
package config

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.yaml kafka/*.yaml kubernetes/*.yaml jaeger-ui.json otelcol-gpu.schema.json
var files embed.FS

// AllInOne is the pipeline that runs when no configuration is given.
const AllInOne = "all-in-one"

// Names lists the pipelines: all-in-one, dcgm-exporter, jaeger, kafka/agent, kafka/gateway,
// kubernetes/agent, kubernetes/dcgm-exporter, kubernetes/gateway, llm, profiles, prometheus, tempo,
// training.
func Names() []string {
	var names []string
	// The embedded tree is fixed at build time: walking it cannot fail.
	_ = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, _ error) error {
		if name, ok := strings.CutSuffix(path, ".yaml"); ok && !d.IsDir() {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names
}

// YAML returns the named pipeline. For an unknown name it returns an error that lists the known
// ones.
func YAML(name string) (string, error) {
	b, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return "", fmt.Errorf("no pipeline %q (there are %s)", name, strings.Join(Names(), ", "))
	}
	return string(b), nil
}

// About returns the beginning of the comment at the head of a pipeline, and what the pipeline
// needs beyond the default build, which is empty for most.
func About(name string) (sentence, needs string) {
	text, err := YAML(name)
	if err != nil {
		return "", ""
	}
	var comment []string
	for line := range strings.Lines(text) {
		words, isComment := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !isComment {
			break
		}
		comment = append(comment, strings.TrimSpace(words))
	}
	all := strings.Join(comment, " ")
	switch _, gate, gated := strings.Cut(all, "--feature-gates "); {
	case gated:
		needs = "--feature-gates " + strings.Fields(gate)[0]
	case strings.Contains(all, "eeds the full build"):
		needs = "full build"
	}
	sentence, _, _ = strings.Cut(all, ". ")
	sentence, _, _ = strings.Cut(sentence, ": ")
	return strings.TrimSuffix(strings.TrimSpace(sentence), "."), needs
}

// JaegerUI returns a configuration of Jaeger's page that shows GPU attributes first
// (`ui::config_file` of its jaeger_query).
func JaegerUI() []byte {
	b, _ := files.ReadFile("jaeger-ui.json") // the embedded tree is fixed at build time
	return b
}

// Schema returns the JSON schema of the configurations that otelcol-gpu accepts, for editors. It is
// generated from the configuration structs.
func Schema() []byte {
	b, _ := files.ReadFile("otelcol-gpu.schema.json") // the embedded tree is fixed at build time
	return b
}
