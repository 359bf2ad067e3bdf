// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const repository = "../../.."

// command runs a program in a directory with additional environment and returns its output.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}

func clone(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	command(t, ".", nil, "git", "clone", "-q", "--no-hardlinks", repository, dir)
	return dir
}

func TestPrepareSetsTheVersionEverywhere(t *testing.T) {
	dir := clone(t)
	require.NoError(t, run([]string{"prepare", "-root", dir, "-version", "v0.8.9-rc.1", "-date", "2030-01-02"}))
	files, err := filesWith(dir, "go.mod", "module ")
	require.NoError(t, err)
	required := 0
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		f, err := modfile.Parse(name, b, nil)
		require.NoError(t, err)
		for _, r := range f.Require {
			if own(r.Mod.Path) {
				required++
				require.Equal(t, "v0.8.9-rc.1", r.Mod.Version, "%s: %s", name, r.Mod.Path)
			}
		}
		if name == "cmd/otelcol-gpu/go.mod" {
			require.Empty(t, f.Replace, "go install refuses replace lines")
		}
	}
	require.GreaterOrEqual(t, required, 8)
	for name, want := range map[string]string{
		"CHANGELOG.md":                      "\n## [0.8.9-rc.1] - 2030-01-02\n",
		"python/pyproject.toml":             "\nversion = \"0.8.9rc1\"\n",
		"cmd/otelcol-gpu/builder.yaml":      "gomod: github.com/otelgpu/otelgpu v0.8.9-rc.1\n",
		"cmd/otelcol-gpu/builder-full.yaml": "gomod: github.com/otelgpu/otelgpu/cmd/otelcol-gpu v0.8.9-rc.1 ",
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Contains(t, string(b), want, name)
	}
	changed := command(t, dir, nil, "git", "diff", "--stat")
	require.NoError(t, run([]string{"prepare", "-root", dir, "-version", "v0.8.9-rc.1", "-date", "2030-01-02"}))
	require.Equal(t, changed, command(t, dir, nil, "git", "diff", "--stat"), "a second run changes nothing")
}

func TestASectionOfTheChangelogIsReleasedOnce(t *testing.T) {
	dir := t.TempDir()
	command(t, dir, nil, "git", "init", "-q")
	git := []string{"-c", "user.name=test", "-c", "user.email=test@example.com"}
	command(t, dir, nil, "git", append(git, "commit", "-q", "--allow-empty", "-m", "one")...)
	command(t, dir, nil, "git", "tag", "v0.3.0")
	for heading, released := range map[string]bool{
		"[Unreleased]": false, "[0.3.0] - unreleased": true, "[0.3.1] - 2030-01-02": true, "[0.3.1] - unreleased": false,
		"[0.4.0] - 2030-01-02": false, "[0.4.0-rc.1] - 2030-01-02": false, "[0.4.01] - 2030-01-02": true,
	} {
		text := "# Changelog\n\n## " + heading + "\n\n- x\n\n## [0.1.0] - 2029-01-02\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte(text), 0o600))
		err := unreleased(dir, "0.4.0")
		require.Equal(t, released, err != nil, "%s: %v", heading, err)
		if released {
			require.ErrorContains(t, err, "which is released (add `## [Unreleased]` above it")
		}
	}
}

func TestVersionsAreSemantic(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "v1", "v1.2", "latest"} {
		require.ErrorContains(t, run([]string{"tags", "-version", version}), "not a semantic version", version)
	}
}

func TestVersion2NeedsOtherModulePaths(t *testing.T) {
	require.ErrorContains(t, run([]string{"tags", "-version", "v2.0.0"}), "/v2")
}

func TestTagsNameTheDirectoryOfTheirModule(t *testing.T) {
	require.Equal(t, "v0.1.0", tag(".", "v0.1.0"))
	require.Equal(t, "cmd/otelcol-gpu/v0.1.0", tag("cmd/otelcol-gpu", "v0.1.0"))
}

// A user's first commands after a release, with a module proxy that has the tags of this commit.
func TestIntegrationReleaseIsInstalledFromOutside(t *testing.T) {
	if os.Getenv("OTELGPU_INTEGRATION") == "" {
		t.Skip("make test-integration installs a release")
	}
	dir := clone(t)
	// A new version for each run, because the modules are unpacked into the user's module cache.
	version := fmt.Sprintf("v0.0.1-test.%d", time.Now().UnixNano())
	require.NoError(t, run([]string{"prepare", "-root", dir, "-version", version}))
	git := []string{"-c", "user.name=test", "-c", "user.email=test@example.com"}
	command(t, dir, nil, "git", append(git, "commit", "-qam", "release")...)
	for _, d := range published {
		command(t, dir, nil, "git", "tag", tag(d, version))
	}
	proxy, bin := filepath.Join(t.TempDir(), "proxy"), t.TempDir()
	require.NoError(t, writeProxy(dir, version, proxy))
	upstream := strings.TrimSpace(command(t, ".", nil, "go", "env", "GOPROXY"))
	cache := strings.TrimSpace(command(t, ".", nil, "go", "env", "GOMODCACHE"))
	env := []string{
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + upstream, "GONOSUMDB=" + prefix, "GOWORK=off",
		"GOFLAGS=-modcacherw -mod=mod", "GOBIN=" + bin,
	}
	t.Cleanup(func() { forget(t, cache, version) })

	t.Run("go get of the library", func(t *testing.T) {
		app := t.TempDir()
		guide, err := os.ReadFile(filepath.Join(repository, "docs", "gpuspan.md"))
		require.NoError(t, err)
		_, program, ok := bytes.Cut(guide, []byte("```go\npackage main"))
		require.True(t, ok, "the guide's first program")
		program, _, _ = bytes.Cut(program, []byte("```"))
		require.NoError(t, os.WriteFile(filepath.Join(app, "main.go"), append([]byte("package main"), program...), 0o600))
		command(t, app, env, "go", "mod", "init", "example.com/app")
		command(t, app, env, "go", "get", prefix+"/gpuspan@"+version)
		require.Contains(t, command(t, app, env, "go", "run", "."), "prefill")
	})
	t.Run("go get of the library's other modules", func(t *testing.T) {
		app := t.TempDir()
		var imports strings.Builder
		for _, dir := range libraries() {
			if strings.HasPrefix(dir, "gpuspan/") {
				fmt.Fprintf(&imports, "import _ %q\n", prefix+"/"+dir)
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(app, "main.go"),
			[]byte("package main\n\n"+imports.String()+"\nfunc main() {}\n"), 0o600))
		command(t, app, env, "go", "mod", "init", "example.com/app")
		for _, dir := range libraries() {
			if strings.HasPrefix(dir, "gpuspan/") {
				command(t, app, env, "go", "get", prefix+"/"+dir+"@"+version)
			}
		}
		command(t, app, env, "go", "run", ".")
	})
	t.Run("go install of the Collector", func(t *testing.T) {
		command(t, t.TempDir(), env, "go", "install", prefix+"/cmd/otelcol-gpu@"+version)
		program := filepath.Join(bin, "otelcol-gpu")
		require.Contains(t, command(t, t.TempDir(), nil, program, "--version"), strings.TrimPrefix(version, "v"))
		command(t, t.TempDir(), []string{"OTELGPU_SOURCE=simulated"}, program, "validate")
	})
	t.Run("two components in a Collector built by the builder", func(t *testing.T) {
		own := t.TempDir()
		manifest := fmt.Sprintf(`dist: {name: mine, module: example.com/mine, output_path: %s}
receivers:
  - {gomod: go.opentelemetry.io/collector/receiver/otlpreceiver v0.159.0}
processors:
  - {gomod: %[2]s %[3]s, import: %[2]s/processor/gpuderiveprocessor}
connectors:
  - {gomod: %[2]s %[3]s, import: %[2]s/connector/gpumetricsconnector}
exporters:
  - {gomod: go.opentelemetry.io/collector/exporter/debugexporter v0.159.0}
providers:
  - {gomod: go.opentelemetry.io/collector/confmap/provider/yamlprovider v1.65.0}
`, filepath.Join(own, "build"), prefix, version)
		file := filepath.Join(own, "builder.yaml")
		require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
		builder := filepath.Join(own, "builder")
		command(t, "..", []string{"GOWORK=off"}, "go", "build", "-o", builder, "go.opentelemetry.io/collector/cmd/builder")
		command(t, own, env, builder, "--config", file, "--skip-compilation")
		// The builder would add -trimpath, which recompiles everything.
		command(t, filepath.Join(own, "build"), env, "go", "build", "-o", filepath.Join(own, "mine"), ".")
		listed := command(t, own, nil, filepath.Join(own, "mine"), "components")
		for _, name := range []string{"gpu_derive", "gpu_metrics"} {
			require.Contains(t, listed, "name: "+name)
		}
	})
}

// forget removes a version of the repository's modules from the module cache.
func forget(t *testing.T, cache, version string) {
	t.Helper()
	for _, dir := range published {
		path := filepath.FromSlash(prefix + "/" + strings.TrimPrefix(dir, "."))
		require.NoError(t, os.RemoveAll(strings.TrimSuffix(filepath.Join(cache, path), "/")+"@"+version))
		left, err := filepath.Glob(filepath.Join(cache, "cache", "download", path, "@v", version+".*"))
		require.NoError(t, err)
		for _, file := range left {
			require.NoError(t, os.Remove(file))
		}
	}
}

// writeProxy writes a module proxy for the tags of a version: a directory for GOPROXY=file://.
func writeProxy(root, version, out string) (err error) {
	for _, dir := range published {
		m := module.Version{Path: path.Join(prefix, dir), Version: version}
		at := filepath.Join(out, filepath.FromSlash(m.Path), "@v")
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		revision := tag(dir, version)
		mod, err := exec.Command("git", "-C", root, "show", revision+":"+path.Join(dir, "go.mod")).Output()
		if err != nil {
			return fmt.Errorf("cannot read go.mod of %s: %w (make the tags that release tags prints)", revision, err)
		}
		subdir := dir
		if dir == "." {
			subdir = ""
		}
		f, err := os.Create(filepath.Join(at, version+".zip"))
		if err != nil {
			return err
		}
		if err := errors.Join(zip.CreateFromVCS(f, m, root, revision, subdir), f.Close()); err != nil {
			return fmt.Errorf("cannot pack %s: %w", m.Path, err)
		}
		info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339))
		for name, text := range map[string][]byte{
			version + ".mod": mod, version + ".info": []byte(info), "list": []byte(version + "\n"),
		} {
			if err := os.WriteFile(filepath.Join(at, name), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
