// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats register themselves
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// scripts of the packages, by format and name. Installation enables the service, and starts it if
// systemd runs: not while an image is built. An upgrade restarts a service that runs, and leaves a
// service that the administrator has disabled or masked as it is.
var scripts = map[string]map[string]string{
	// Debian's helpers know what the administrator has disabled, also before a removal, and obey
	// policy-rc.d.
	"deb": {
		"postinstall": `#!/bin/sh
set -e
if deb-systemd-helper --quiet was-enabled otelcol-gpu.service; then
	deb-systemd-helper enable otelcol-gpu.service >/dev/null || true
else
	deb-systemd-helper update-state otelcol-gpu.service >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	deb-systemd-invoke restart otelcol-gpu.service || echo "otelcol-gpu did not start: see journalctl -u otelcol-gpu" >&2
fi
`,
		"preremove": `#!/bin/sh
set -e
if [ -d /run/systemd/system ] && [ "$1" = remove ]; then
	deb-systemd-invoke stop otelcol-gpu.service || true
fi
`,
		"postremove": `#!/bin/sh
set -e
if [ "$1" = purge ]; then
	deb-systemd-helper purge otelcol-gpu.service >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
`,
	},
	// rpm passes the number of versions that are left.
	"rpm": {
		"postinstall": `#!/bin/sh
command -v systemctl >/dev/null || exit 0
act=try-restart
if [ "$1" = 1 ]; then
	act=start
	systemctl enable otelcol-gpu.service || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl "$act" otelcol-gpu.service || echo "otelcol-gpu did not start: see journalctl -u otelcol-gpu" >&2
fi
`,
		"preremove": `#!/bin/sh
if [ "$1" = 0 ] && command -v systemctl >/dev/null; then
	systemctl disable --now otelcol-gpu.service || true
fi
`,
		"postremove": `#!/bin/sh
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
`,
	},
}

// packages writes the deb and the rpm of a Linux program.
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
		return fmt.Errorf("the unit does not name /usr/local/bin, which packages replace by /usr/bin")
	}
	unit = bytes.ReplaceAll(unit, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	unit = bytes.ReplaceAll(unit, []byte("/etc/systemd/system/"), []byte("/usr/lib/systemd/system/"))
	contents := files.Contents{}
	add := func(source, to, kind string, mode os.FileMode) {
		contents = append(contents, &files.Content{
			Source: source, Destination: to, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.epoch},
		})
	}
	write := func(name string, data []byte) string {
		path := filepath.Join(work, name)
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		return path
	}
	const doc = "/usr/share/doc/otelcol-gpu/"
	add(p.path, "/usr/bin/otelcol-gpu", "", 0o755)
	add(write("library", library), "/usr/lib/otelgpu/libotelgpu_capture.so", "", 0o755)
	add(write("unit", unit), "/usr/lib/systemd/system/otelcol-gpu.service", "", 0o644)
	add(filepath.Join(r.root, "deploy", "systemd", "environment"), "/etc/otelgpu/environment", "config|noreplace", 0o644)
	add(filepath.Join(r.root, "LICENSE"), doc+"copyright", "", 0o644)
	add(write("licenses", p.licenses), doc+"THIRD_PARTY_LICENSES", "", 0o644)
	for format, texts := range scripts {
		for name, text := range texts {
			write(format+"-"+name, []byte(text))
		}
	}
	if err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		// A dev build is older than its release: 0.1.0~dev.COMMIT.
		number, pre, _ := strings.Cut(r.version, "-")
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: p.name, Arch: p.arch, Platform: "linux", Version: number, Prerelease: pre, Release: "1",
			Maintainer:  "The otelgpu Authors <https://github.com/otelgpu/otelgpu>",
			Vendor:      "The otelgpu Authors",
			Homepage:    "https://github.com/otelgpu/otelgpu",
			License:     "Apache-2.0",
			Section:     "net",
			Description: "OpenTelemetry Collector for GPU work",
			MTime:       r.epoch,
			Overridables: nfpm.Overridables{
				Contents: contents,
				Scripts: nfpm.Scripts{
					PostInstall: filepath.Join(work, format+"-postinstall"),
					PreRemove:   filepath.Join(work, format+"-preremove"),
					PostRemove:  filepath.Join(work, format+"-postremove"),
				},
				Umask: 0o022,
				RPM:   nfpm.RPM{BuildHost: "localhost"},
			},
		})
		switch format {
		case "deb": // glibc's loader: the program opens the driver's libraries
			info.Depends = []string{"libc6", "init-system-helpers"}
		case "rpm":
			info.Depends = []string{"glibc"}
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
