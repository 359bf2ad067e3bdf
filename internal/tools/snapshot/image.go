// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the numeric ID of the images' user, which lets an orchestrator verify that it is not
// root.
const user = 65532

// listeners are the addresses of the ready pipelines in an image. A container has its own network:
// the Collector would be unreachable on its loopback interface, and -p decides which ports the host
// opens.
var listeners = []struct{ variable, port string }{
	{"OTELGPU_OTLP_GRPC", "4317"},
	{"OTELGPU_OTLP_HTTP", "4318"},
	{"OTELGPU_METRICS", "9464"},
	{"OTELGPU_PAGE", "9465"},
	{"OTELGPU_HEALTH", "13133"},
}

// images writes one OCI layout with an image for each Linux architecture of each build, and one
// with the capture library.
func (r *release) images(ctx context.Context, programs []program, base []basePackage) error {
	indexes := map[string]v1.ImageIndex{}
	add := func(image string, p program, layers []v1.Layer, config v1.Config) error {
		config.Labels = map[string]string{
			"org.opencontainers.image.title":    image,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source":   "https://github.com/otelgpu/otelgpu",
			"org.opencontainers.image.licenses": "Apache-2.0",
		}
		img, err := r.image(p.arch, layers, config)
		if err != nil {
			return err
		}
		if indexes[image] == nil {
			indexes[image] = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		}
		indexes[image] = mutate.AppendManifests(indexes[image], mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}},
		})
		return nil
	}
	done := map[string]bool{} // capture images, one for each architecture
	for _, p := range programs {
		if p.os != "linux" {
			continue
		}
		library, err := r.captureLibrary(p.arch)
		if err != nil {
			return err
		}
		shared := entry{path: "usr/lib/otelgpu/libotelgpu_capture.so", mode: 0o755, data: library}
		glibc, packages, err := baseFiles(ctx, base, p.arch, "glibc")
		if err != nil {
			return err
		}
		system, err := r.layer(append(glibc, account()...))
		if err != nil {
			return err
		}
		binary, err := os.ReadFile(p.path)
		if err != nil {
			return err
		}
		const doc = "usr/share/doc/otelcol-gpu/"
		license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
		if err != nil {
			return err
		}
		application, err := r.layer([]entry{
			{path: "usr/bin/otelcol-gpu", mode: 0o755, data: binary},
			shared,
			{path: doc + "LICENSE", mode: 0o644, data: license},
			{path: doc + "THIRD_PARTY_LICENSES", mode: 0o644, data: p.licenses},
			{path: "var/lib/otelgpu", mode: 0o755, dir: true, uid: user},
		})
		if err != nil {
			return err
		}
		config := v1.Config{
			User: fmt.Sprintf("%d:%[1]d", user), Entrypoint: []string{"/usr/bin/otelcol-gpu"}, WorkingDir: "/",
			Env:          []string{"PATH=/usr/bin:/bin", "SSL_CERT_FILE=/" + certificates},
			ExposedPorts: map[string]struct{}{},
		}
		if p.name == "otelcol-gpu" { // the full build has no pipeline
			for _, l := range listeners {
				config.Env = append(config.Env, l.variable+"=0.0.0.0:"+l.port)
				config.ExposedPorts[l.port+"/tcp"] = struct{}{}
			}
			config.Env = append(config.Env, "OTELGPU_TELEMETRY_HOST=0.0.0.0")
			config.ExposedPorts["8888/tcp"] = struct{}{}
			config.Healthcheck = &v1.HealthConfig{
				Test: []string{"CMD", "/usr/bin/otelcol-gpu", "health"}, Interval: 30 * time.Second, Timeout: 5 * time.Second,
				StartPeriod: 10 * time.Second,
			}
		}
		if err := add(p.name, p, []v1.Layer{system, application}, config); err != nil {
			return err
		}
		if err := r.writeSBOM(p.name+"-image_"+r.version+"_"+p.os+"_"+p.arch, p, packages); err != nil {
			return err
		}
		if done[p.arch] {
			continue
		}
		done[p.arch] = true
		shell, _, err := baseFiles(ctx, base, p.arch, "busybox")
		if err != nil {
			return err
		}
		for _, applet := range []string{"cat", "chgrp", "chmod", "chown", "cp", "ln", "ls", "mkdir", "rm", "sh"} {
			shell = append(shell, entry{path: "bin/" + applet, link: "busybox"})
		}
		only, err := r.layer(append(append(shell, account()...), shared))
		if err != nil {
			return err
		}
		if err := add("otelgpu-capture", p, []v1.Layer{only}, v1.Config{
			User: fmt.Sprintf("%d:%[1]d", user), WorkingDir: "/", Env: []string{"PATH=/bin"},
			Entrypoint: []string{"/bin/cp", "/usr/lib/otelgpu/libotelgpu_capture.so"}, Cmd: []string{"/otelgpu/"},
		}); err != nil {
			return err
		}
	}
	for image, index := range indexes {
		dir := filepath.Join(r.out, "oci", image)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		// An outer index names the tag, as tools that read layouts expect.
		outer := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
			Add: index, Descriptor: v1.Descriptor{
				Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version},
			},
		})
		if _, err := layout.Write(dir, outer); err != nil {
			return err
		}
		if err := r.packLayout(dir, filepath.Join(r.out, image+"_"+r.version+"_oci.tar")); err != nil {
			return err
		}
	}
	return nil
}

// account returns the user of the images, and a directory for temporary files.
func account() []entry {
	return []entry{
		{path: "etc/passwd", mode: 0o644, data: []byte(
			"root:x:0:0:root:/root:/sbin/nologin\notelgpu:x:65532:65532:otelgpu:/var/lib/otelgpu:/sbin/nologin\n",
		)},
		{path: "etc/group", mode: 0o644, data: []byte("root:x:0:\notelgpu:x:65532:\n")},
		{path: "etc/nsswitch.conf", mode: 0o644, data: []byte("passwd: files\ngroup: files\nhosts: files dns\n")},
		{path: "tmp", mode: 0o1777, dir: true},
	}
}

func (r *release) layer(entries []entry) (v1.Layer, error) {
	var b bytes.Buffer
	if err := writeTar(&b, entries, r.epoch); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

func (r *release) image(arch string, layers []v1.Layer, config v1.Config) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range layers {
		var err error
		if img, err = mutate.Append(img, mutate.Addendum{
			Layer: l, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.epoch}, CreatedBy: "snapshot"},
		}); err != nil {
			return nil, err
		}
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config, file.Created = "linux", arch, config, v1.Time{Time: r.epoch}
	return mutate.ConfigFile(img, file)
}

// packLayout writes a layout as one file (oci-archive).
func (r *release) packLayout(dir, to string) error {
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		entries = append(entries, entry{path: filepath.ToSlash(rel), mode: 0o644, data: b})
		return err
	})
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := writeTar(f, entries, r.epoch); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// push writes the images of a folder of layouts to a registry, each under its name and version.
func push(ctx context.Context, dir, to string) error {
	images, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, image := range images {
		outer, err := layout.ImageIndexFromPath(filepath.Join(dir, image.Name()))
		if err != nil {
			return err
		}
		manifest, err := outer.IndexManifest()
		if err != nil {
			return err
		}
		for _, m := range manifest.Manifests {
			index, err := outer.ImageIndex(m.Digest)
			if err != nil {
				return err
			}
			ref, err := name.ParseReference(to + "/" + image.Name() + ":" + m.Annotations["org.opencontainers.image.ref.name"])
			if err != nil {
				return err
			}
			if err := remote.WriteIndex(ref, index, remote.WithContext(ctx),
				remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
				return err
			}
			fmt.Printf("%s@%s\n", ref, m.Digest)
		}
	}
	return nil
}
