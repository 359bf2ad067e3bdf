// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package test

import (
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// Libraries of the images, as their vendors list them. Alpine has neither these nor glibc's loader,
// so it is equivalent to scratch here.
var (
	glibc = []string{
		"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2",
		"librt.so.1",
	}
	gcc   = []string{"libgcc_s.so.1", "libstdc++.so.6"}
	roots = map[string][]string{
		"scratch": nil, "distroless static": nil, "distroless base": glibc,
		"distroless cc": append(slices.Clone(glibc), gcc...),
	}
)

// Verifies docs/operating.md on linking: runs each program in a root that has only an image's
// libraries.
func TestIntegrationBinariesStartWithTheirLibrariesOnly(t *testing.T) {
	integration.Need(t)
	if err := start(t.TempDir(), "/none"); errors.Is(err, syscall.EPERM) {
		t.Skip("chroot is not permitted here (run as root)")
	}
	// A program with few dependencies: everything that imports net is compiled again without cgo.
	build := func(env []string, tags string) string {
		path, err := program.Build(filepath.Join("..", "gpuspan", "cuda", "testdata", "withcuda"), env, "-tags", tags)
		require.NoError(t, err)
		return path
	}
	for _, x := range []struct {
		name, path string
		args       []string
		static     bool
	}{
		{"otelcol-gpu", buildCollector(t), []string{"config"}, false},
		{"gpuspan/cuda", build(nil, ""), nil, false},
		{"gpuspan/cuda without cgo", build([]string{"CGO_ENABLED=0"}, ""), nil, false},
		{
			"gpuspan/cuda without cgo, gpuspan_static", build([]string{"CGO_ENABLED=0"}, "gpuspan_static"), nil, true,
		},
	} {
		file, err := elf.Open(x.path)
		require.NoError(t, err)
		needed, err := file.ImportedLibraries()
		require.NoError(t, err)
		require.NoError(t, file.Close())
		assert.Equal(t, x.static, len(needed) == 0, "%s is linked with %v", x.name, needed)
		for image, libraries := range roots {
			err := start(root(t, x.path, libraries), "/program", x.args...)
			if x.static || libraries != nil {
				assert.NoError(t, err, "%s in %s", x.name, image)
			} else {
				assert.ErrorIs(t, err, syscall.ENOENT, "%s in %s: there is no loader", x.name, image)
			}
		}
	}
}

// root returns a folder with the program and libraries of this machine.
func root(t *testing.T, path string, libraries []string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "lib64"), 0o755))
	if os.Link(path, filepath.Join(dir, "program")) != nil { // on another file system
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "program"), b, 0o755))
	}
	for _, name := range libraries {
		found := ""
		for _, folder := range []string{"/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"} {
			if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
				found = filepath.Join(folder, name)
				break
			}
		}
		if found == "" {
			t.Skipf("%s is not on this machine", name)
		}
		b, err := os.ReadFile(found)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lib64", name), b, 0o755))
	}
	return dir
}

// start runs a program in a root that contains only the folder. Exit statuses are not errors,
// because the program has started.
func start(dir, path string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
	cmd.Dir, cmd.Env = "/", []string{"LD_LIBRARY_PATH=/lib64"}
	cmd.Err = nil // the path is in the new root
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && !strings.Contains(string(out), "shared librar") {
		return nil
	}
	return err
}

// Requirements of container file linters, and of the documentation.
func TestTheContainerFileIsPinnedAndNotRoot(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "deploy", "container", "Containerfile"))
	require.NoError(t, err)
	assert.NotContains(t, string(b), ":latest")
	var from, stage, checks []string
	for n, list := range stages(t) {
		from, stage = append(from, list[0].rest), nil
		for _, i := range list[1:] {
			if !slices.Contains([]string{
				"ARG", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "EXPOSE", "ENTRYPOINT", "CMD", "ENV", "HEALTHCHECK",
			}, i.word) {
				t.Errorf("%s is not wanted here", i.word)
			}
			stage = append(stage, i.word+" "+i.rest)
			if i.word == "HEALTHCHECK" {
				checks = append(checks, from[n])
			}
		}
		if n == 2 {
			break
		}
	}
	all := stages(t)
	require.Len(t, all, 5)
	assert.Empty(t, checks, "the full build has no command health")
	assert.Equal(t, "full AS core", all[3][0].rest)
	require.Len(t, all[3], 2)
	assert.Equal(t, "HEALTHCHECK", all[3][1].word)
	assert.Equal(t, []instruction{{"FROM", "${BUILD}"}}, all[4], "the argument BUILD selects the image")
	for _, image := range from {
		assert.Regexp(t, `^\$\{(\w+)_IMAGE\}\$\{(\w+)_DIGEST:\+@\$\{(\w+)_DIGEST\}\}( AS \w+)?$`, image)
		assert.NotContains(t, image, ":latest")
	}
	// The final image, without its health check.
	final := strings.Join(stage, "\n")
	assert.Regexp(t, `(?m)^USER 65532:65532$`, final, "a number, by which an orchestrator knows that it is not root")
	assert.NotRegexp(t, `(?m)^RUN`, final, "there is no shell")
	assert.Regexp(t, `(?m)^ENTRYPOINT \["/usr/bin/otelcol-gpu"\]$`, final)
	for _, line := range stage {
		if strings.HasPrefix(line, "COPY") {
			assert.Contains(t, line, "--from=build")
		}
	}
	ready, err := config.YAML(config.AllInOne)
	require.NoError(t, err)
	ports := regexp.MustCompile(`(?::-127\.0\.0\.1:|PORT:-)(\d+)\}`).FindAllStringSubmatch(ready, -1)
	require.NotEmpty(t, ports)
	for _, m := range regexp.MustCompile(`\$\{env:(OTELGPU_\w+):-127\.0\.0\.1(:\d+)?\}`).FindAllStringSubmatch(ready, -1) {
		assert.Contains(t, final, m[1]+"=0.0.0.0"+m[2], "docker run -p reaches every listener")
	}
	exposed := strings.Fields(regexp.MustCompile(`(?m)^EXPOSE (.*)$`).FindStringSubmatch(final)[1])
	assert.Len(t, exposed, len(ports))
	for _, p := range ports {
		assert.Contains(t, exposed, p[1])
	}
	ignored, err := os.ReadFile(filepath.Join("..", "deploy", "container", "Containerfile.dockerignore"))
	require.NoError(t, err)
	assert.Contains(t, strings.Fields(string(ignored)), ".git")
}

// A build takes minutes and pulls images, so it runs only on request: OTELGPU_TEST_DOCKER=docker
// (or podman). Without such a builder, OTELGPU_TEST_DOCKER=chroot runs the file's own steps one by
// one, with this machine's Go and libraries.
func TestTheContainerIsBuiltAndStarts(t *testing.T) {
	builder := os.Getenv("OTELGPU_TEST_DOCKER")
	switch builder {
	case "":
		t.Skip("OTELGPU_TEST_DOCKER names no builder")
	case "chroot":
		builtStepByStep(t)
		return
	}
	rootFolder, err := filepath.Abs("..")
	require.NoError(t, err)
	for target, args := range map[string][]string{"": {"config"}, "capture": {"/tmp/"}} {
		image := "otelcol-gpu-test" + target
		out, err := exec.CommandContext(t.Context(), builder, "build", "-f",
			filepath.Join(rootFolder, "deploy/container/Containerfile"), "--target", target, "-t", image,
			rootFolder).CombinedOutput()
		require.NoError(t, err, string(out))
		out, err = exec.CommandContext(t.Context(), builder, append([]string{"run", "--rm", image},
			args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// instruction is one instruction of a stage in the container file.
type instruction struct{ word, rest string }

// stages returns the stages of the container file with their instructions; lines before the first
// FROM are skipped.
func stages(t *testing.T) (list [][]instruction) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "deploy", "container", "Containerfile"))
	require.NoError(t, err)
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(b), "")
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "FROM":
			list = append(list, []instruction{{word, rest}})
		case word != "" && len(list) > 0:
			list[len(list)-1] = append(list[len(list)-1], instruction{word, rest})
		}
	}
	return list
}

func builtStepByStep(t *testing.T) {
	dir := t.TempDir()
	source, out, image := filepath.Join(dir, "src"), filepath.Join(dir, "out"), filepath.Join(dir, "image")
	for _, d := range []string{source, out, image} {
		require.NoError(t, os.Mkdir(d, 0o755))
	}
	run := func(folder, script string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "BUILD=core", "VERSION=")
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, text)
	}
	run("..", "git ls-files -co --exclude-standard | tar -cT - | tar -xC "+source)
	all := stages(t)
	mount := regexp.MustCompile(`--mount=\S+`)
	for _, i := range all[0] {
		if i.word == "RUN" {
			run(source, strings.ReplaceAll(mount.ReplaceAllString(i.rest, ""), "/out", out))
		}
	}
	require.NoError(t, os.CopyFS(image, os.DirFS(root(t, filepath.Join(out, "usr", "bin", "otelcol-gpu"), glibc))))
	var entry string
	for _, i := range all[2] {
		switch i.word {
		case "COPY":
			paths := strings.Fields(regexp.MustCompile(`--\S+`).ReplaceAllString(i.rest, ""))
			require.Len(t, paths, 2, i.rest)
			from, to := strings.Replace(paths[0], "/out", out, 1), filepath.Join(image, paths[1])
			run(dir, "mkdir -p "+to+" && cp -a "+from+"/. "+to)
		case "ENTRYPOINT":
			entry = strings.Trim(i.rest, `[]"`)
		}
	}
	require.FileExists(t, filepath.Join(image, "usr/lib/otelgpu/libotelgpu_capture.so"))
	require.DirExists(t, filepath.Join(image, "var/lib/otelgpu"))
	for path := dir; path != filepath.Dir(path); path = filepath.Dir(path) { // so that another user has access
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o001 == 0 {
			require.NoError(t, os.Chmod(path, info.Mode().Perm()|0o011))
		}
	}
	cmd := exec.CommandContext(t.Context(), entry, "config")
	cmd.Dir, cmd.Env, cmd.Err = "/", []string{"LD_LIBRARY_PATH=/lib64"}, nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: image, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Contains(t, string(said), "all-in-one")
}

// Checks the unit with systemd's own parser and its own security score.
func TestTheServiceIsAUnitOfSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	b, err := os.ReadFile(filepath.Join("..", "deploy", "systemd", "otelcol-gpu.service"))
	require.NoError(t, err)
	program, err := exec.LookPath("true")
	require.NoError(t, err)
	dir := t.TempDir()
	unit := filepath.Join(dir, "otelcol-gpu.service")
	text := strings.ReplaceAll(string(b), "/usr/local/bin/otelcol-gpu", program)
	require.NoError(t, os.WriteFile(unit, []byte(text), 0o600))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "Unknown", "keys and sections")
	// 0 is the most restricted, 10 the least; a plain service has 9.6.
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=25",
		unit).CombinedOutput()
	require.NoError(t, err, string(out))

	// The name of a ready pipeline works for both commands of the unit, and every variable of the
	// environment file is used.
	environment, err := os.ReadFile(filepath.Join("..", "deploy", "systemd", "environment"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^#?(OTELGPU_\w+)=`).FindAllStringSubmatch(string(environment), -1) {
		known := strings.Contains(string(b), "${"+m[1]+"}")
		for _, name := range config.Names() {
			yaml, err := config.YAML(name)
			require.NoError(t, err)
			known = known || strings.Contains(yaml, "${env:"+m[1])
		}
		assert.True(t, known, m[1])
	}
}
