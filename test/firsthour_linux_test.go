// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/freeport"
	profiles "github.com/otelgpu/otelgpu/internal/recorded"
)

// standIns are shell scripts that replace programs of the README that this machine may lack. They
// behave as a newcomer would see: the server sends its spans of requests, the others read their
// files.
var standIns = map[string]string{
	"vllm":   `for a; do last=$a; done; FIRST_HOUR_ENDPOINT=${last#http://} exec "$FIRST_HOUR_TEST" -test.run '^TestStubOfVLLM$'`,
	"docker": `[ "$1 $2" = "build -f" ] && for a; do last=$a; done && cd "$last" && grep -q '^ENTRYPOINT' "$3"`,
	"kubectl": `[ "$1 $2" = "apply -k" ] && cd "$3" && sed -n '/^resources:/,/^[a-z]/s/^ *- //p' kustomization.yaml | ` +
		`while read -r f; do test -e "$f"; done`,
}

// TestStubOfVLLM replaces the server: it sends the spans of seven requests, as vLLM does once they
// have ended.
func TestStubOfVLLM(t *testing.T) {
	endpoint := os.Getenv("FIRST_HOUR_ENDPOINT")
	if endpoint == "" {
		t.Skip("only as the stub of a server")
	}
	zero := time.Now().Add(200 * time.Millisecond)
	time.Sleep(time.Until(zero.Add(3800 * time.Millisecond)))
	export(t, endpoint, []*sender{{td: vllm(zero, "", 0, func(int) bool { return true })}})
}

var firstHour = filepath.Join("..", "docs", "first-hour.md")

// Runs every command of the first hour unchanged, in this checkout, and verifies that git
// sees no changes.
func TestTheFirstHour(t *testing.T) {
	if testing.Short() {
		t.Skip("the first hour takes minutes")
	}
	t.Parallel() // it mostly waits for the Collector's first points
	text, err := os.ReadFile(firstHour)
	require.NoError(t, err)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	program := filepath.Join(root, "bin", "otelcol-gpu")
	if _, err := os.Stat(program); err != nil {
		t.Cleanup(func() { _ = os.Remove(program) })
	}
	before := untracked(t, root)
	parts := regexp.MustCompile(`(?m)^## `).Split(string(text), -1)[1:]
	require.Len(t, parts, 4)
	blocks := 0
	for _, part := range parts {
		path, body, _ := strings.Cut(part, "\n")
		for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(body, -1) {
			blocks++
			require.LessOrEqual(t, strings.Count(m[1], "\n"), 10, "%s is ten lines", path)
			t.Run(fmt.Sprint(path, " ", blocks), func(t *testing.T) { followed(t, root, m[1]) })
		}
	}
	require.Equal(t, 5, blocks)
	for line := range strings.Lines(untracked(t, root)) {
		require.Contains(t, before, line, "something is left behind in the clone")
	}
}

// A Collector that cannot listen exits. The reader must notice it, although another program
// responds at its addresses.
func TestTheFirstHourStopsIfAPortIsTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is built")
	}
	b, err := os.ReadFile(firstHour)
	require.NoError(t, err)
	_, text, found := strings.Cut(string(b), "\n## A Go service\n")
	require.True(t, found)
	block := regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindStringSubmatch(text)
	require.NotNil(t, block)
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "gpu_request_energy_joules_sum{} 5")
	}))
	defer stranger.Close()
	// The example would wait for the Collector; the block must prevent that or report it.
	script := strings.NewReplacer(
		"go build -o bin/ ./cmd/otelcol-gpu", ":", "bin/otelcol-gpu", buildCollector(t), "go -C examples run", "true",
		"127.0.0.1:9464", strings.TrimPrefix(stranger.URL, "http://"),
	).Replace(block[1])
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir, shell.Env = t.TempDir(), append(os.Environ(), "OTELGPU_METRICS="+strings.TrimPrefix(stranger.URL, "http://"))
	for _, variable := range []string{"OTELGPU_OTLP_GRPC", "OTELGPU_OTLP_HTTP", "OTELGPU_PAGE", "OTELGPU_HEALTH"} {
		shell.Env = append(shell.Env, variable+"=127.0.0.1:0")
	}
	shell.Env = append(shell.Env, "OTELGPU_TELEMETRY_PORT=0")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := shell.CombinedOutput()
	_ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM)
	require.Error(t, err, string(out))
	require.Contains(t, string(out), "address already in use")
}

// followed runs a block of commands in a shell, on free ports.
func followed(t *testing.T, root, block string) {
	tools := t.TempDir()
	for name, script := range standIns {
		// A builder pulls images, so it runs only on request; commands that change a cluster do not
		// run.
		if !strings.Contains(block, name+" ") || name == "docker" && os.Getenv("OTELGPU_TEST_DOCKER") == "docker" {
			continue
		}
		t.Logf("%s is replaced by a stub", name)
		require.NoError(t, os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/bash\nset -e\n"+script+"\n"), 0o755))
	}
	if strings.Contains(block, "\npython ") {
		path := os.Getenv("OTELGPU_TORCH")
		if path == "" || exec.Command(path, "-c", "import torch, opentelemetry.exporter.otlp.proto.http").Run() != nil {
			t.Skip("no Python with PyTorch and the OpenTelemetry SDK: set OTELGPU_TORCH")
		}
		require.NoError(t, os.WriteFile(filepath.Join(tools, "python"), []byte("#!/bin/bash\nexec "+path+` "$@"`+"\n"),
			0o755))
	}
	if strings.Contains(block, "worker0.pt.trace.json.gz") {
		file := profiles.Path(t, "kineto", "hta/nccl_parser_config/nccl_data.json.gz")
		out := t.TempDir()
		block = strings.Replace(block, "worker0.pt.trace.json.gz", "--out "+out+" "+file, 1)
		defer func() {
			for _, name := range []string{"report.html", "spans.json", "trace.json"} {
				require.FileExists(t, filepath.Join(out, name))
			}
		}()
	}
	env := append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	self, err := os.Executable()
	require.NoError(t, err)
	env = append(env, "FIRST_HOUR_TEST="+self)
	for port, variable := range map[string]string{
		"4317": "OTELGPU_OTLP_GRPC", "4318": "OTELGPU_OTLP_HTTP", "9464": "OTELGPU_METRICS", "9465": "OTELGPU_PAGE",
		"13133": "OTELGPU_HEALTH", "8888": "OTELGPU_TELEMETRY_PORT",
	} {
		address, err := freeport.Address()
		require.NoError(t, err)
		block = strings.ReplaceAll(block, "127.0.0.1:"+port, address)
		env = append(env, variable+"="+map[bool]string{
			false: address, true: address[strings.LastIndex(address, ":")+1:],
		}[port == "8888"])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", block)
	shell.Dir, shell.Env = root, env
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that processes left after a failure are stopped, too
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	var out strings.Builder
	shell.Stdout, shell.Stderr = &out, &out
	err = shell.Run()
	_ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM)
	require.NoError(t, err, "%s\n%s", block, &out)
	if strings.Contains(block, "grep") { // its matches exist and are above 0
		require.Regexp(t, `(?m)^gpu_\w+\{.*\} (0\.0*)?[1-9]`, out.String())
	}
}

// untracked returns the files that git lists as new or changed.
func untracked(t *testing.T, root string) string {
	t.Helper()
	git := exec.Command("git", "status", "--porcelain", "--untracked-files=all")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		t.Log("this is no checkout of git: what is left behind is not looked at")
	}
	return string(out)
}
