// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats register themselves
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes the deb and the rpm of a Linux program, as deploy/packages/nfpm.yaml describes
// them.
func (r *release) packages(p program) error {
	work, err := os.MkdirTemp("", "otelgpu-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	library, err := r.captureLibrary(p.arch)
	if err != nil {
		return err
	}
	unit, err := os.ReadFile(filepath.Join(r.root, "deploy", "systemd", "otelcol-gpu.service"))
	if err != nil {
		return err
	}
	if !bytes.Contains(unit, []byte("/usr/local/bin/")) {
		return errors.New("the unit does not name /usr/local/bin, which packages replace by /usr/bin")
	}
	unit = bytes.ReplaceAll(unit, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	unit = bytes.ReplaceAll(unit, []byte("/etc/systemd/system/"), []byte("/usr/lib/systemd/system/"))
	for name, data := range map[string][]byte{"library": library, "unit": unit, "licenses": p.licenses} {
		if err := os.WriteFile(filepath.Join(work, name), data, 0o644); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(r.root, "deploy", "packages", "nfpm.yaml"))
	if err != nil {
		return err
	}
	// A dev build is older than its release: 0.1.0~dev.COMMIT.
	number, pre, _ := strings.Cut(r.version, "-")
	values := map[string]string{
		"ARCH": p.arch, "VERSION": number, "PRERELEASE": pre, "BINARY": p.path, "WORK": work, "ROOT": r.root,
	}
	config, err := nfpm.Parse(strings.NewReader(os.Expand(string(text), func(name string) string { return values[name] })))
	if err != nil {
		return err
	}
	config.MTime = r.epoch
	for _, format := range []string{"deb", "rpm"} {
		info, err := config.Get(format)
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := packager.Package(info, &b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.out, packager.ConventionalFileName(info)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
