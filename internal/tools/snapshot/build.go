// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// program is one build of the Collector for one platform.
type program struct {
	name     string // otelcol-gpu or otelcol-gpu-full
	os, arch string
	path     string
	info     *buildinfo.BuildInfo
	licenses []byte
}

func (p program) file() string {
	if p.os == "windows" {
		return p.name + ".exe"
	}
	return p.name
}

// stem returns the name of the program's archive without its extension.
func (p program) stem(version string) string {
	return p.name + "_" + version + "_" + p.os + "_" + p.arch
}

// build writes everything to out, except what make wrote there before: the Python package and the
// capture library.
func (r *release) build(ctx context.Context, builds, systems []string) error {
	for _, b := range builds {
		if b != "core" && b != "full" {
			return fmt.Errorf("unknown build %q (core or full)", b)
		}
	}
	old, err := filepath.Glob(filepath.Join(r.out, "*"))
	if err != nil {
		return err
	}
	for _, path := range old { // no file of another version gets a checksum
		if name := filepath.Base(path); name != "python" && name != "capture" {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "otelgpu-snapshot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var programs []program
	for _, b := range builds {
		made, err := r.compile(ctx, work, b, systems)
		if err != nil {
			return err
		}
		programs = append(programs, made...)
	}
	for _, p := range programs {
		fmt.Fprintf(os.Stderr, "snapshot: pack %s\n", p.stem(r.version))
		if err := r.archive(p); err != nil {
			return fmt.Errorf("archive of %s: %w", p.stem(r.version), err)
		}
		if err := r.writeSBOM(p.stem(r.version), p, nil); err != nil {
			return err
		}
		if p.os == "linux" && p.name == "otelcol-gpu" {
			if err := r.packages(p); err != nil {
				return fmt.Errorf("packages of %s: %w", p.stem(r.version), err)
			}
		}
	}
	base, err := readBase(r.root)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "snapshot: write images and the chart")
	if err := r.images(ctx, programs, base); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return err
	}
	return r.seal()
}

// profile is the CPU profile by which the compiler optimizes a release. With a file default.pgo,
// each build of users would compile all packages again.
const profile = "cmd/otelcol-gpu/otelcol-gpu.pgo"

// compile builds one build of the Collector for all platforms, without cgo: the libraries of DCGM
// and NVML are opened at run time.
func (r *release) compile(ctx context.Context, work, build string, systems []string) ([]program, error) {
	name, dir := "otelcol-gpu", filepath.Join(r.root, "cmd", "otelcol-gpu")
	flags := "-s -w -X main.version=" + r.version
	if build == "full" {
		name, flags = "otelcol-gpu-full", "-s -w"
		if err := r.generate(ctx, work, dir); err != nil {
			return nil, err
		}
		dir = filepath.Join(dir, "build")
	} else if err := replaced(r.root, filepath.Join(work, "go.mod")); err != nil {
		return nil, err
	}
	var out []program
	for _, system := range systems {
		p := program{name: name}
		p.os, p.arch, _ = strings.Cut(system, "/")
		if build == "full" && p.os != "linux" {
			continue
		}
		fmt.Fprintf(os.Stderr, "snapshot: compile %s\n", p.stem(r.version))
		p.path = filepath.Join(work, p.os+"_"+p.arch, p.file())
		env := []string{
			"GOWORK=off", "CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOFLAGS=-buildvcs=false", "GOAMD64=v1",
			"GOARM64=v8.0",
		}
		args := []string{"build", "-trimpath", "-ldflags", flags, "-pgo", filepath.Join(r.root, profile), "-o", p.path}
		if build == "core" {
			args = append(args, "-modfile="+filepath.Join(work, "go.mod"))
		}
		if _, err := output(ctx, dir, env, "go", append(args, ".")...); err != nil {
			return nil, err
		}
		var err error
		if p.info, err = buildinfo.ReadFile(p.path); err != nil {
			return nil, err
		}
		if p.licenses, err = licenses(ctx, r.root, p.info); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// replaced writes the go.mod of the core build, with replace lines to the repository's own modules,
// and its go.sum beside it. A release commit has no such lines, and its modules cannot be
// downloaded before the tags are published.
func replaced(root, to string) error {
	dir := filepath.Join(root, "cmd", "otelcol-gpu")
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return err
	}
	for _, req := range f.Require {
		if !own(req.Mod.Path) {
			continue
		}
		path := filepath.Join(root, strings.TrimPrefix(req.Mod.Path, prefix))
		if path, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		if err := f.AddReplace(req.Mod.Path, "", filepath.ToSlash(path), ""); err != nil {
			return err
		}
	}
	if text, err = f.Format(); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, text, 0o644), os.WriteFile(strings.TrimSuffix(to, "mod")+"sum", sums, 0o644))
}

// generate writes the source of the full build to its usual directory, as make build-full does,
// with the release's version.
func (r *release) generate(ctx context.Context, work, dir string) error {
	manifest, err := os.ReadFile(filepath.Join(dir, "builder-full.yaml"))
	if err != nil {
		return err
	}
	manifest = regexp.MustCompile(`(?m)^(  version: )\S+$`).ReplaceAll(manifest, []byte("${1}"+r.version))
	file := filepath.Join(work, "builder-full.yaml")
	if err := os.WriteFile(file, manifest, 0o644); err != nil {
		return err
	}
	_, err = output(ctx, dir, []string{"GOWORK=off"}, filepath.Join(r.root, "bin", "builder"), "--config", file,
		"--skip-compilation")
	return err
}

// licenses returns the license texts of the modules in a program, which its binary must be
// accompanied by.
func licenses(ctx context.Context, root string, info *buildinfo.BuildInfo) ([]byte, error) {
	cache, err := output(ctx, root, nil, "go", "env", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if own(m.Path) || strings.HasPrefix(m.Path, ".") { // the repository's own license is a separate file
			continue
		}
		path, err := module.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(cache, filepath.FromSlash(path)+"@"+m.Version)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		found := false
		for _, e := range entries {
			upper := strings.ToUpper(e.Name())
			if e.IsDir() || strings.HasSuffix(upper, ".GO") || !slices.ContainsFunc(
				[]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"},
				func(s string) bool { return strings.HasPrefix(upper, s) }) {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			found = true
			out = fmt.Appendf(out, "===== %s %s: %s\n\n%s\n", m.Path, m.Version, e.Name(), b)
		}
		if !found {
			return nil, fmt.Errorf("module %s %s has no license file", m.Path, m.Version)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no licenses of modules found")
	}
	return out, nil
}

const prefix = "github.com/otelgpu/otelgpu"

func own(path string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
