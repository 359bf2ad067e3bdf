// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

const repository = "../../.."

// build creates a snapshot of the core build for this machine in out. The capture library is a text
// file here: make capture-release builds it, and the tests of the Python package load it.
func build(t *testing.T, out string) {
	t.Helper()
	library := filepath.Join(out, "capture", "linux_"+runtime.GOARCH, "libotelgpu_capture.so")
	require.NoError(t, os.MkdirAll(filepath.Dir(library), 0o755))
	require.NoError(t, os.WriteFile(library, []byte("library"), 0o755))
	require.NoError(t, run(t.Context(), []string{
		"build", "-root", repository, "-out", out, "-builds", "core", "-platforms", "linux/" + runtime.GOARCH,
		"-version", "0.9.0-dev.1",
	}))
}

func checksums(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(t, err)
	return string(b)
}

// Builds the downloads twice, compares, installs and starts them, as far as possible without a
// registry.
func TestIntegrationSnapshot(t *testing.T) {
	if os.Getenv("OTELGPU_SNAPSHOT") == "" {
		t.Skip("make test-snapshot builds a snapshot, for several minutes")
	}
	if runtime.GOOS != "linux" {
		t.Skip("packages and images are for Linux")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	out := t.TempDir()
	build(t, out)

	t.Run("a second run makes the same bytes", func(t *testing.T) {
		second := t.TempDir()
		build(t, second)
		require.Equal(t, checksums(t, out), checksums(t, second))
	})
	t.Run("every file has its checksum", func(t *testing.T) { everyFileIsListed(t, out) })
	t.Run("the archive", func(t *testing.T) {
		dir := t.TempDir()
		stem := "otelcol-gpu_0.9.0-dev.1_linux_" + runtime.GOARCH
		shell(t, dir, "tar", "xzf", filepath.Join(out, stem+".tar.gz"))
		require.Contains(t, shell(t, dir, filepath.Join(dir, stem, "otelcol-gpu"), "--version"), "0.9.0-dev.1")
		for _, name := range []string{
			"LICENSE", "THIRD_PARTY_LICENSES", "systemd/otelcol-gpu.service", "libotelgpu_capture.so",
		} {
			require.FileExists(t, filepath.Join(dir, stem, name))
		}
	})
	t.Run("the bill of materials lists what go version -m does", func(t *testing.T) { modulesAreListed(t, out) })
	t.Run("the image", func(t *testing.T) { imageStarts(t, out) })
	t.Run("the image is pushed to a registry", func(t *testing.T) {
		server := httptest.NewServer(registry.New())
		defer server.Close()
		to := strings.TrimPrefix(server.URL, "http://") + "/otelgpu"
		require.NoError(t, run(t.Context(), []string{"push", "-out", out, "-to", to}))
		require.NoError(t, run(t.Context(), []string{"push", "-out", out, "-to", to}), "a second time, too")
	})
	t.Run("the deb is installed, started and removed", func(t *testing.T) { debIsInstalled(t, out) })
	t.Run("the rpm is installed, started and removed", func(t *testing.T) { rpmIsInstalled(t, out) })
}

func shell(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", cmd, b)
	return string(b)
}

func everyFileIsListed(t *testing.T, out string) {
	want := map[string]string{}
	require.NoError(t, filepath.WalkDir(out, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, filepath.Join(out, "oci")) || d.Name() == "SHA256SUMS" {
			return err
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		rel, err := filepath.Rel(out, path)
		want[filepath.ToSlash(rel)] = fmt.Sprintf("%x", sha256.Sum256(b))
		return err
	}))
	got := map[string]string{}
	for line := range strings.Lines(checksums(t, out)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, ok)
		got[name] = sum
	}
	require.Equal(t, want, got)
}

func modulesAreListed(t *testing.T, out string) {
	dir := t.TempDir()
	stem := "otelcol-gpu_0.9.0-dev.1_linux_" + runtime.GOARCH
	shell(t, dir, "tar", "xzf", filepath.Join(out, stem+".tar.gz"))
	var bom struct {
		Components []struct{ Name, Version, PURL string }
	}
	b, err := os.ReadFile(filepath.Join(out, stem+".cdx.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &bom))
	got := map[string]string{}
	for _, c := range bom.Components {
		got[c.Name] = c.Version
	}
	want := map[string]string{"std": strings.TrimPrefix(runtime.Version(), "go")}
	for line := range strings.Lines(shell(t, dir, "go", "version", "-m", filepath.Join(stem, "otelcol-gpu"))) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
			want[f[1]] = f[2]
			if own(f[1]) {
				want[f[1]] = "v0.9.0-dev.1"
			}
		}
	}
	require.Greater(t, len(want), 100)
	require.Equal(t, want, got)
}

// imageStarts validates the layout, unpacks the image of this machine and runs its entry point as
// its user.
func imageStarts(t *testing.T, out string) {
	p, err := layout.FromPath(filepath.Join(out, "oci", "otelcol-gpu"))
	require.NoError(t, err)
	outer, err := p.ImageIndex()
	require.NoError(t, err)
	require.NoError(t, validate.Index(outer))
	img := only(t, outer)
	file, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "65532:65532", file.Config.User)
	require.Equal(t, runtime.GOARCH, file.Architecture)
	require.Contains(t, file.Config.ExposedPorts, "4317/tcp")
	require.Equal(t, []string{"CMD", "/usr/bin/otelcol-gpu", "health"}, file.Config.Healthcheck.Test)
	dir := t.TempDir()
	unpackImage(t, img, dir)
	require.FileExists(t, filepath.Join(dir, "usr", "lib", "otelgpu", "libotelgpu_capture.so"))
	pem, err := os.ReadFile(filepath.Join(dir, certificates))
	require.NoError(t, err)
	require.Greater(t, bytes.Count(pem, []byte("BEGIN CERTIFICATE")), 100)
	program, err := elf.Open(filepath.Join(dir, "usr", "bin", "otelcol-gpu"))
	require.NoError(t, err)
	defer program.Close()
	if os.Getuid() != 0 {
		t.Skip("only root may change the root directory")
	}
	// A separate network namespace, in which its fixed ports are free and loopback is the only
	// interface.
	script := `ip link set lo up 2>/dev/null || true
change=$(command -v chroot)
` + strings.Join(file.Config.Env, " ") + ` OTELGPU_SOURCE=simulated "$change" --userspec=65532:65532 . /usr/bin/otelcol-gpu &
p=$!
for i in $(seq 240); do
	OTELGPU_HEALTH=0.0.0.0:13133 chroot --userspec=65532:65532 . /usr/bin/otelcol-gpu health && break
	kill -0 $p && sleep 0.25
done
OTELGPU_HEALTH=0.0.0.0:13133 chroot . /usr/bin/otelcol-gpu health
cat /proc/net/tcp /proc/net/tcp6
kill $p; wait $p`
	said := inNamespace(t, dir, script)
	for _, port := range []int{4317, 4318, 9464, 9465, 13133, 8888} {
		require.Regexp(t, fmt.Sprintf(" 0+:%04X ", port), said, "all interfaces, port %d", port)
	}
}

func only(t *testing.T, outer v1.ImageIndex) v1.Image {
	t.Helper()
	for {
		m, err := outer.IndexManifest()
		require.NoError(t, err)
		require.Len(t, m.Manifests, 1)
		if !m.Manifests[0].MediaType.IsIndex() {
			img, err := outer.Image(m.Manifests[0].Digest)
			require.NoError(t, err)
			return img
		}
		outer, err = outer.ImageIndex(m.Manifests[0].Digest)
		require.NoError(t, err)
	}
}

func unpackImage(t *testing.T, img v1.Image, dir string) {
	t.Helper()
	stream := mutate.Extract(img)
	defer stream.Close()
	files := tar.NewReader(stream)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		to := filepath.Join(dir, filepath.FromSlash(path.Clean(h.Name)))
		switch h.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.MkdirAll(to, 0o755))
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(h.Linkname, to))
		default:
			b, err := io.ReadAll(files)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, b, os.FileMode(h.Mode)))
		}
	}
}

// inNamespace runs a script with separate network and mounts, and skips the test if that is not
// permitted.
func inNamespace(t *testing.T, dir, script string) string {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "true").Run(); err != nil {
		t.Skip("namespaces are not permitted here (run as root)")
	}
	return shell(t, dir, "unshare", "--mount", "--net", "bash", "-eu", "-c", script)
}

// packageOf returns the one package of a kind, and skips the test if it cannot be installed here.
func packageOf(t *testing.T, out, kind, tool string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(out, "*."+kind))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, filepath.Base(found[0]), "0.9.0~dev.1", "older than 0.9.0")
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("%s is not installed", tool)
	}
	return found[0]
}

const enabled = "/etc/systemd/system/multi-user.target.wants/otelcol-gpu.service"

func debIsInstalled(t *testing.T, out string) {
	file := packageOf(t, out, "deb", "dpkg")
	got := installed(t, file, `
dpkg -i /package
dpkg -V otelcol-gpu
test -L `+enabled+`
`, `
dpkg -i /package
test -L `+enabled+` && rm `+enabled+`
dpkg -i /package
test ! -L `+enabled+` && echo "it is still disabled"
dpkg -r otelcol-gpu
cat /etc/otelgpu/environment
dpkg -P otelcol-gpu
`)
	require.Contains(t, got, "it is still disabled")
	const restart = "--quiet --system restart otelcol-gpu.service"
	require.Equal(t, []string{restart, restart, restart, "stop otelcol-gpu.service"}, called(got))
}

// A machine of another kind has no shell in rpm's database, so what the package requires is
// compared instead.
func rpmIsInstalled(t *testing.T, out string) {
	file := packageOf(t, out, "rpm", "rpm")
	require.Equal(t, "/etc/otelgpu/environment\n", shell(t, ".", "rpm", "-qp", "--configfiles", file))
	for line := range strings.Lines(shell(t, ".", "rpm", "-qp", "--requires", file)) {
		require.Regexp(t, `^(glibc|/bin/sh|rpmlib\(.*)`, line)
	}
	got := installed(t, file, `
rpm --install --nodeps /package
rpm --verify --nodeps otelcol-gpu
test -L `+enabled+`
`, `
rpm --upgrade --replacepkgs --nodeps /package
rpm --erase otelcol-gpu
cat /etc/otelgpu/environment.rpmsave
rm /etc/otelgpu/environment.rpmsave
`)
	require.Equal(t, []string{
		"start otelcol-gpu.service", "try-restart otelcol-gpu.service", "disable --now otelcol-gpu.service",
	}, called(got))
}

// called returns the arguments of the calls of systemctl that start or stop.
func called(output string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^systemctl (.*)`).FindAllStringSubmatch(output, -1) {
		if strings.Contains(m[1], "start ") || strings.Contains(m[1], "stop ") || strings.Contains(m[1], "disable ") {
			out = append(out, m[1])
		}
	}
	return out
}

// installed installs a package into an overlay of this machine's own file system, which is
// discarded, starts the Collector, changes its settings, removes it, and returns the output. A
// script that only sets the link of an enabled service and prints its arguments takes the place of
// systemctl.
func installed(t *testing.T, file, install, remove string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root installs packages")
	}
	dir := t.TempDir()
	try := exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-eu", "-c", overlay(dir))
	if b, err := try.CombinedOutput(); err != nil {
		t.Skipf("an overlay of the root is not permitted here: %s", b)
	}
	said := inNamespace(t, dir, overlay(dir)+`
cp `+file+` root/package
mount --rbind /proc root/proc
mkdir -p root/run/systemd/system
rm -f root/usr/bin/systemctl root/usr/sbin/policy-rc.d
cat >root/usr/bin/systemctl <<"END"
#!/bin/sh
link=`+enabled+`
case "$*" in
*is-enabled*) test -L "$link" && echo enabled; exit;;
*is-active*) exit;;
enable*|*preset*) mkdir -p "${link%/*}"; ln -s /usr/lib/systemd/system/otelcol-gpu.service "$link";;
disable*) rm -f "$link";;
esac
echo "systemctl $*"
END
chmod +x root/usr/bin/systemctl
chroot root bash -eu -c '`+install+`
ls -l /usr/lib/systemd/system/otelcol-gpu.service /usr/lib/otelgpu/libotelgpu_capture.so
! command -v systemd-analyze || systemd-analyze verify --man=no /usr/lib/systemd/system/otelcol-gpu.service
. /etc/otelgpu/environment
ip link set lo up 2>/dev/null || true
OTELGPU_SOURCE=simulated /usr/bin/otelcol-gpu --config "$OTELGPU_CONFIG" &
p=$!
for i in $(seq 240); do /usr/bin/otelcol-gpu health && break; kill -0 $p && sleep 0.25; done
/usr/bin/otelcol-gpu health && echo "it is ready"
kill $p; wait $p
echo "OTELGPU_CONFIG=llm" >/etc/otelgpu/environment
`+remove+`
test ! -e /usr/bin/otelcol-gpu -a ! -e /etc/otelgpu/environment && echo "nothing is left"
'`)
	for _, want := range []string{"it is ready", "OTELGPU_CONFIG=llm\n", "nothing is left"} {
		require.Contains(t, said, want)
	}
	require.NoFileExists(t, "/package")
	return said
}

func overlay(dir string) string {
	return `cd ` + dir + `
mkdir -p layer
mount -t tmpfs none layer
mkdir layer/upper layer/work
mkdir -p root
mount -t overlay none -o lowerdir=/,upperdir=layer/upper,workdir=layer/work root
`
}

func TestTarHasOneOrderAndTime(t *testing.T) {
	at := time.Unix(1700000000, 0)
	var a, b bytes.Buffer
	x, y := entry{path: "a/x", mode: 0o644, data: []byte("x")}, entry{path: "a/b/y", mode: 0o755, data: []byte("y")}
	require.NoError(t, writeTar(&a, []entry{x, y}, at))
	require.NoError(t, writeTar(&b, []entry{y, x}, at))
	require.Equal(t, a.Bytes(), b.Bytes())
	var got []string
	for r := tar.NewReader(&a); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.Equal(t, at, h.ModTime)
		got = append(got, h.Name)
	}
	require.Equal(t, []string{"a/", "a/b/", "a/b/y", "a/x"}, got)
}

func TestAPackageOfTheBaseIsComparedWithItsChecksum(t *testing.T) {
	p := basePackage{Path: "pool/x.deb", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("right")))}
	require.NoError(t, p.check([]byte("right")))
	require.ErrorContains(t, p.check([]byte("wrong")), "pool/x.deb has the checksum")
}

func TestTheBaseHasTheSamePackagesForEachArchitecture(t *testing.T) {
	base, err := readBase(repository)
	require.NoError(t, err)
	names := map[string][]string{}
	for _, p := range base {
		names[p.Arch] = append(names[p.Arch], p.Image+" "+p.Name)
		require.Len(t, p.SHA256, 64)
	}
	require.Len(t, names, 2)
	require.Len(t, names["amd64"], len(wanted))
	require.Equal(t, names["amd64"], names["arm64"])
}

// A release commit requires versions that cannot be downloaded yet, and has no replace lines.
func TestACommitOfAReleaseIsBuiltFromItsOwnModules(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	at := filepath.Join(root, "cmd", "otelcol-gpu")
	require.NoError(t, os.MkdirAll(at, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(at, "go.sum"), []byte("sums\n"), 0o600))
	mod := "module github.com/otelgpu/otelgpu/cmd/otelcol-gpu\n\ngo 1.26.0\n\nrequire (\n" +
		"\tgithub.com/otelgpu/otelgpu v0.2.0\n\tgithub.com/otelgpu/otelgpu/gpuspan v0.2.0\n\texample.com/other v1.0.0\n)\n"
	want := mod + "\nreplace github.com/otelgpu/otelgpu => ../..\n" +
		"\nreplace github.com/otelgpu/otelgpu/gpuspan => ../../gpuspan\n"
	for _, text := range []string{mod, want} { // for a release, and in development
		require.NoError(t, os.WriteFile(filepath.Join(at, "go.mod"), []byte(text), 0o600))
		require.NoError(t, replaced(root, filepath.Join(dir, "go.mod")))
		got, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		require.NoError(t, err)
		require.Equal(t, "sums\n", string(sums))
	}
}

func TestUnknownBuildsAreRefused(t *testing.T) {
	require.ErrorContains(t, (&release{out: t.TempDir()}).build(t.Context(), []string{"cor"}, nil), `unknown build "cor"`)
	require.ErrorContains(t, run(t.Context(), []string{"publish"}), "unknown command")
	require.ErrorContains(t, run(t.Context(), []string{"push"}), "-to")
}
