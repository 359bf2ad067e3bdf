// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/blakesmith/ar"
	"github.com/ulikunitz/xz"
)

// The images contain glibc, its dependencies and the root certificates from Debian, as the
// libraries of NVIDIA's driver and of DCGM need them, and nothing else: no shell, no package
// manager.
const (
	mirror       = "https://deb.debian.org/debian/"
	suite        = "bookworm"
	certificates = "etc/ssl/certs/ca-certificates.crt"
)

// basePackage is a Debian package in an image, pinned by its checksum.
type basePackage struct {
	Image   string `json:"image"` // glibc: the images of the Collector; busybox: the image of the capture library
	Name    string `json:"name"`
	Arch    string `json:"arch"` // amd64, arm64
	Version string `json:"version"`
	Path    string `json:"path"` // below the mirror
	SHA256  string `json:"sha256"`
}

var wanted = []struct{ image, name string }{
	{"glibc", "ca-certificates"},
	{"glibc", "libc6"},
	{"glibc", "libgcc-s1"},
	{"glibc", "libstdc++6"},
	{"busybox", "busybox-static"},
}

func baseFile(root string) string { return filepath.Join(root, "deploy", "container", "base.json") }

func readBase(root string) (base []basePackage, err error) {
	b, err := os.ReadFile(baseFile(root))
	if err != nil {
		return nil, err
	}
	return base, json.Unmarshal(b, &base)
}

// updateBase writes the newest versions of the packages to base.json.
func updateBase(ctx context.Context, root string) error {
	var base []basePackage
	for _, arch := range []string{"amd64", "arm64"} {
		index, err := download(ctx, mirror+"dists/"+suite+"/main/binary-"+arch+"/Packages.xz")
		if err != nil {
			return err
		}
		text, err := xz.NewReader(bytes.NewReader(index))
		if err != nil {
			return err
		}
		found := map[string]basePackage{}
		p := basePackage{Arch: arch}
		lines := bufio.NewScanner(text)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), ": ")
			switch key {
			case "Package":
				p.Name = value
			case "Version":
				p.Version = value
			case "Filename":
				p.Path = value
			case "SHA256":
				p.SHA256 = value
			case "":
				found[p.Name] = p
				p = basePackage{Arch: arch}
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
		for _, w := range wanted {
			p, ok := found[w.name]
			if !ok {
				return fmt.Errorf("debian %s has no package %s for %s", suite, w.name, arch)
			}
			p.Image = w.image
			base = append(base, p)
		}
	}
	b, err := json.MarshalIndent(base, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(baseFile(root), append(b, '\n'), 0o644)
}

func download(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 2 * time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// fetch returns a package's file, from the user's cache if it is there.
func (p basePackage) fetch(ctx context.Context) ([]byte, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(cache, "otelgpu", "debian", p.SHA256)
	if b, err := os.ReadFile(file); err == nil && p.check(b) == nil {
		return b, nil
	}
	b, err := download(ctx, mirror+p.Path)
	if err != nil {
		return nil, fmt.Errorf("%w (make image-base pins the newest versions, as Debian removes older ones)", err)
	}
	if err := p.check(b); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "new-")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(b)
	return b, errors.Join(err, f.Close(), os.Rename(f.Name(), file))
}

func (p basePackage) check(b []byte) error {
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != p.SHA256 {
		return fmt.Errorf("%s has the checksum %x, want %s", p.Path, sum, p.SHA256)
	}
	return nil
}

// baseFiles returns the files of an image's packages for an architecture, and these packages.
func baseFiles(
	ctx context.Context, base []basePackage, arch, image string,
) (all []entry, used []basePackage, err error) {
	var bundle []entry // certificates
	for _, p := range base {
		if p.Arch != arch || p.Image != image {
			continue
		}
		b, err := p.fetch(ctx)
		if err != nil {
			return nil, nil, err
		}
		files, err := unpack(b)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.Path, err)
		}
		used = append(used, p)
		for _, e := range files {
			switch {
			case strings.HasPrefix(e.path, "usr/share/ca-certificates/") && strings.HasSuffix(e.path, ".crt"):
				bundle = append(bundle, e)
			case keep(e):
				all = append(all, e)
			}
		}
	}
	if len(used) == 0 {
		return nil, nil, fmt.Errorf("deploy/container/base.json has no packages of %s for %s", image, arch)
	}
	if len(bundle) > 0 {
		// As update-ca-certificates does when the package is installed.
		slices.SortFunc(bundle, func(a, b entry) int { return strings.Compare(a.path, b.path) })
		e := entry{path: certificates, mode: 0o644}
		for _, c := range bundle {
			e.data = append(append(e.data, bytes.TrimSpace(c.data)...), '\n')
		}
		all = append(all, e)
	}
	return all, used, nil
}

// keep drops what a program does not read: locales, character sets, documentation (except
// licenses), scripts.
func keep(e entry) bool {
	if e.dir {
		return false // writeTar adds the directories that are needed
	}
	if strings.HasPrefix(e.path, "usr/share/doc/") {
		return path.Base(e.path) == "copyright"
	}
	for _, p := range []string{"usr/share/", "usr/sbin/", "etc/"} {
		if strings.HasPrefix(e.path, p) {
			return false
		}
	}
	return !strings.Contains(e.path, "/gconv/") && !strings.Contains(e.path, "/audit/")
}

// unpack returns the files of a Debian package.
func unpack(deb []byte) ([]entry, error) {
	archive := ar.NewReader(bytes.NewReader(deb))
	for {
		h, err := archive.Next()
		if err != nil {
			return nil, fmt.Errorf("no data.tar.xz: %w", err)
		}
		if strings.TrimSuffix(strings.TrimSpace(h.Name), "/") != "data.tar.xz" {
			continue
		}
		plain, err := xz.NewReader(archive)
		if err != nil {
			return nil, err
		}
		var out []entry
		files := tar.NewReader(plain)
		for {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				return out, nil
			}
			if err != nil {
				return nil, err
			}
			e := entry{path: path.Clean(h.Name), mode: h.Mode & 0o777, dir: h.Typeflag == tar.TypeDir}
			switch h.Typeflag {
			case tar.TypeReg:
				if e.data, err = io.ReadAll(files); err != nil {
					return nil, err
				}
			case tar.TypeSymlink:
				e.link = h.Linkname
			case tar.TypeDir:
			default:
				return nil, fmt.Errorf("%s has the unexpected type %q", h.Name, h.Typeflag)
			}
			out = append(out, e)
		}
	}
}
