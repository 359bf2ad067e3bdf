// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// entry is a file, directory or link of an archive, package or image.
type entry struct {
	path string // with slashes, relative
	mode int64
	data []byte
	link string // target of a symbolic link
	dir  bool
	uid  int
}

// writeTar writes entries, sorted by path and with the directories above them, all with one time.
func writeTar(w io.Writer, entries []entry, at time.Time) error {
	all := map[string]entry{}
	for _, e := range entries {
		for dir := path.Dir(e.path); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = entry{path: dir, mode: 0o755, dir: true}
			}
		}
		all[e.path] = e
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	out := tar.NewWriter(w)
	for _, name := range names {
		e := all[name]
		h := &tar.Header{
			Name: e.path, Mode: e.mode, Size: int64(len(e.data)), ModTime: at, Uid: e.uid, Gid: e.uid,
			Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		switch {
		case e.dir:
			h.Typeflag, h.Name = tar.TypeDir, e.path+"/"
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(e.data); err != nil {
			return err
		}
	}
	return out.Close()
}

func writeTarGz(file string, entries []entry, at time.Time) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(z, entries, at); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func writeZip(file string, entries []entry, at time.Time) error {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.path, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode))
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// archive writes the tar.gz (Windows: zip) of a program.
func (r *release) archive(p program) error {
	binary, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	stem := p.stem(r.version)
	entries := []entry{
		{path: stem + "/" + p.file(), mode: 0o755, data: binary},
		{path: stem + "/THIRD_PARTY_LICENSES", mode: 0o644, data: p.licenses},
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		b, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		entries = append(entries, entry{path: stem + "/" + name, mode: 0o644, data: b})
	}
	if p.os == "linux" {
		library, err := r.captureLibrary(p.arch)
		if err != nil {
			return err
		}
		entries = append(entries, entry{path: stem + "/libotelgpu_capture.so", mode: 0o755, data: library})
	}
	if p.os == "linux" && p.name == "otelcol-gpu" {
		for _, name := range []string{"otelcol-gpu.service", "environment"} {
			b, err := os.ReadFile(filepath.Join(r.root, "deploy", "systemd", name))
			if err != nil {
				return err
			}
			entries = append(entries, entry{path: stem + "/systemd/" + name, mode: 0o644, data: b})
		}
	}
	if p.os == "windows" {
		return writeZip(filepath.Join(r.out, stem+".zip"), entries, r.epoch)
	}
	return writeTarGz(filepath.Join(r.out, stem+".tar.gz"), entries, r.epoch)
}

// captureLibrary returns the library that make capture-release built for an architecture.
func (r *release) captureLibrary(arch string) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.out, "capture", "linux_"+arch, "libotelgpu_capture.so"))
}

// chart writes the Helm chart as helm package does.
func (r *release) chart() error {
	dir := filepath.Join(r.root, "deploy", "helm")
	list, err := exec.Command("git", "-C", dir, "ls-files", "-z", "otelgpu").Output()
	if err != nil {
		return err
	}
	var entries []entry
	for _, name := range strings.FieldsFunc(string(list), func(c rune) bool { return c == 0 }) {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if name == "otelgpu/Chart.yaml" {
			b = regexp.MustCompile(`(?m)^((?:version|appVersion): ).*$`).ReplaceAll(b, []byte("${1}"+r.version))
		}
		entries = append(entries, entry{path: name, mode: 0o644, data: b})
	}
	return writeTarGz(filepath.Join(r.out, "otelgpu-"+r.version+".tgz"), entries, r.epoch)
}
