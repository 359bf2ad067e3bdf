// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the components of a program as CycloneDX. The modules are read from the binary
// itself.
func (r *release) writeSBOM(stem string, p program, packages []basePackage) error {
	binary, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(binary)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.epoch.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: p.name, Type: cdx.ComponentTypeApplication, Name: p.name, Version: r.version,
			PackageURL: "pkg:golang/" + p.info.Main.Path + "@v" + r.version,
			Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
			Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		},
	}
	components := []cdx.Component{{
		BOMRef: "pkg:golang/std@" + p.info.GoVersion, Type: cdx.ComponentTypeLibrary, Name: "std",
		Version:    strings.TrimPrefix(p.info.GoVersion, "go"),
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(p.info.GoVersion, "go"),
	}}
	for _, m := range p.info.Deps {
		version, hash := m.Version, m.Sum
		if m.Replace != nil {
			hash = m.Replace.Sum
			if own(m.Path) {
				version = "v" + r.version
			} else {
				version = m.Replace.Version
			}
		}
		c := cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: version,
			PackageURL: "pkg:golang/" + m.Path + "@" + url.PathEscape(version),
		}
		c.BOMRef = c.PackageURL
		if h1, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(hash, "h1:")); err == nil && len(h1) == sha256.Size {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(h1)}}
		}
		components = append(components, c)
	}
	for _, d := range packages {
		c := cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: d.Name, Version: d.Version,
			PackageURL: fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s",
				url.PathEscape(d.Name), url.PathEscape(d.Version), d.Arch, suite),
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: d.SHA256}},
		}
		c.BOMRef = c.PackageURL
		components = append(components, c)
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: p.name, Dependencies: &refs}}
	var b bytes.Buffer
	encoder := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, stem+".cdx.json"), b.Bytes(), 0o644)
}

// seal writes the checksums of all files that are published.
func (r *release) seal() error {
	sums := map[string]string{}
	for _, pattern := range []string{"*", "python/*", "capture/*/*"} {
		found, err := filepath.Glob(filepath.Join(r.out, filepath.FromSlash(pattern)))
		if err != nil {
			return err
		}
		for _, path := range found {
			if info, err := os.Stat(path); err != nil {
				return err
			} else if info.IsDir() {
				continue
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(r.out, path)
			if err != nil {
				return err
			}
			sums[filepath.ToSlash(rel)] = fmt.Sprintf("%x", sha256.Sum256(b))
		}
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}
