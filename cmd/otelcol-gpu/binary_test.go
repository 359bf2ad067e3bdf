// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/freeport"
)

// programs is the directory of the built program, if a test has built it.
var programs string

// binary is the real program, built once for all tests of the package. Debug information would
// double the link time.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "otelcol-gpu-test")
	if err != nil {
		return "", err
	}
	programs = dir
	path := filepath.Join(dir, "otelcol-gpu")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if programs != "" {
		os.RemoveAll(programs)
	}
	os.Exit(code)
}

// buffer collects output of a process that may still write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func freePort(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}

// ports are free ports for every listener of the ready pipelines.
type ports struct{ grpc, http, metrics, health, telemetry, page string }

func freePorts(t *testing.T) (ports, []string) {
	p := ports{freePort(t), freePort(t), freePort(t), freePort(t), freePort(t), freePort(t)}
	const host = "127.0.0.1:"
	return p, append(os.Environ(),
		"OTELGPU_OTLP_GRPC="+host+p.grpc, "OTELGPU_OTLP_HTTP="+host+p.http, "OTELGPU_METRICS="+host+p.metrics,
		"OTELGPU_HEALTH="+host+p.health, "OTELGPU_PAGE="+host+p.page, "OTELGPU_TELEMETRY_PORT="+p.telemetry)
}

type process struct {
	cmd    *exec.Cmd
	stdout buffer
	stderr buffer
	done   chan struct{}
	err    error
}

func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, &p.stdout, &p.stderr
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// exit waits for the end of the process and returns its exit code.
func (p *process) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		require.FailNow(t, "still running", p.stderr.String())
	}
	if failed, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return failed.ExitCode()
	}
	require.NoError(t, p.err)
	return 0
}

func (p *process) interrupt(t *testing.T) int {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	return p.exit(t, time.Minute)
}

// healthy waits until the Collector reports that it is healthy.
func (p *process) healthy(t *testing.T, port string) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := get(t.Context(), "http://127.0.0.1:"+port)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, time.Minute, time.Millisecond, "%s", &p.stderr)
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

func TestRunsWithoutConfigurationAndPrintsListeners(t *testing.T) {
	ports, env := freePorts(t)
	p := start(t, env)
	p.healthy(t, ports.health)
	require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), "  GPUs ") }, time.Minute,
		10*time.Millisecond)
	require.Zero(t, p.interrupt(t))
	require.Equal(t, []string{
		"Everything is ready: otelcol-gpu " + version + ". Press Ctrl-C to stop.",
		"  OTLP in   gRPC 127.0.0.1:" + ports.grpc + ", HTTP 127.0.0.1:" + ports.http,
		"  page      http://127.0.0.1:" + ports.page,
		"  metrics   http://127.0.0.1:" + ports.metrics + "/metrics",
		"  GPUs      none found, retrying (OTELGPU_LOG_LEVEL=info logs the reason; OTELGPU_SOURCE=simulated simulates one)",
	}, strings.Split(strings.TrimSpace(p.stderr.String()), "\n"))
}

// A number is not a valid name, even if it is the value of one.
func TestNumbersInPlaceOfNamesAreRefused(t *testing.T) {
	for option, want := range map[string]string{
		"processors.gpu_join.attributes":   "\"gpu_join\": … `attributes`: must be lean or full, found \"1\"",
		"processors.gpu_derive.attributes": "\"gpu_derive\": … `attributes`: must be lean or full, found \"1\"",
		"receivers.kineto.detail":          "\"kineto\": … `detail`: unknown detail \"1\" (one of auto, steps,",
		"receivers.kineto.extent":          "\"kineto\": … `extent`: unknown extent \"1\" (one of all, steps,",
		"receivers.nsys.detail":            "\"nsys\": … `detail`: unknown detail \"1\" (one of auto, steps,",
		"receivers.gpu_capture.detail":     "\"gpu_capture\": … `detail`: unknown detail \"1\" (one of auto, steps,",
	} {
		config := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(config, []byte(`
receivers: {kineto: {include: [a.json]}, nsys: {include: [a.sqlite]}, gpu_capture: {}}
extensions: {gpu_samples: {}}
processors: {gpu_join: {samples: gpu_samples}, gpu_derive: {}}
exporters: {debug: {}}
service:
  extensions: [gpu_samples]
  pipelines: {traces: {receivers: [kineto, nsys, gpu_capture], processors: [gpu_join, gpu_derive], exporters: [debug]}}
`), 0o600))
		p := start(t, nil, "validate", "--config", config)
		require.Zero(t, p.exit(t, time.Minute), &p.stderr)
		p = start(t, nil, "validate", "--config", config, "--set", option+"=1")
		require.Equal(t, 1, p.exit(t, time.Minute), option)
		for part := range strings.SplitSeq(want, " … ") {
			require.Contains(t, p.stderr.String(), part, option)
		}
	}
}

// Settings with which spans can be lost or repeated are named before the start.
func TestValidateWarnsOfLosses(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
receivers: {otlp: {protocols: {http: {}}}}
extensions: {gpu_samples: {}}
processors: {gpu_join: {samples: gpu_samples}}
exporters: {otlp_http: {endpoint: "http://localhost:1"}, debug: {}}
service:
  extensions: [gpu_samples]
  pipelines: {traces: {receivers: [otlp], processors: [gpu_join], exporters: [otlp_http, debug]}}
`), 0o600))
	p := start(t, nil, "validate", "--config", config)
	require.Zero(t, p.exit(t, time.Minute), &p.stderr)
	require.Contains(t, p.stderr.String(), "warning: pipeline traces: when otlp_http rejects spans, the pipeline's other "+
		"exporters and connectors receive them again (set `exporters::otlp_http::sending_queue::block_on_overflow` to true)\n")
}

func TestEveryGPUReceiverIsNamedAtTheStart(t *testing.T) {
	config := filepath.Join(t.TempDir(), "two.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
receivers:
  gpu: {source: simulated}
  gpu/more: {source: simulated, simulated: {devices: 3, seed: 2}}
exporters: {debug: {}}
service: {telemetry: {metrics: {level: none}}, pipelines: {metrics: {receivers: [gpu, gpu/more], exporters: [debug]}}}
`), 0o600))
	p := start(t, nil, "--config", config)
	for _, line := range []string{"  GPUs      1 from simulated\n", "  GPUs      3 from simulated\n"} {
		require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), line) }, time.Minute,
			10*time.Millisecond, "%s", line)
	}
}

func TestASourceThatDoesNotOpenStatesWhy(t *testing.T) {
	p := start(t, nil, "--config", `yaml:{
receivers: {gpu: {source: replay, replay: {file: nothing.gpurec}}}, exporters: {debug: {}},
service: {telemetry: {metrics: {level: none}}, pipelines: {metrics: {receivers: [gpu], exporters: [debug]}}}}`)
	for _, text := range []string{
		"  GPUs      none found, retrying (the warning above has the reason)\n", "open nothing.gpurec: no such file",
	} {
		require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), text) }, time.Minute,
			10*time.Millisecond, "%s", text)
	}
}

// The text of a ready pipeline contains commas; a single key may be set in addition to its name.
func TestReadyPipelinesPrintTheirListeners(t *testing.T) {
	ports, env := freePorts(t)
	page := "127.0.0.1:" + freePort(t)
	p := start(t, env, "--config", "llm", "--set", "exporters.gpu_page.endpoint="+page)
	p.healthy(t, ports.health)
	require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), "  GPUs ") }, time.Minute,
		10*time.Millisecond)
	require.Zero(t, p.interrupt(t))
	// A warning about a server that does not run may precede it.
	_, after, found := strings.Cut(p.stderr.String(), "Everything is ready")
	require.True(t, found, p.stderr.String())
	require.Equal(t, []string{
		"  OTLP in   gRPC 127.0.0.1:" + ports.grpc + ", HTTP 127.0.0.1:" + ports.http,
		"  page      http://" + page,
		"  metrics   http://127.0.0.1:" + ports.metrics + "/metrics",
	}, strings.Split(after, "\n")[1:4])
}

func TestEveryReadyPipelineOfTheCoreBuildStarts(t *testing.T) {
	for _, name := range []string{"jaeger", "profiles", "tempo", "prometheus"} {
		t.Run(name, func(t *testing.T) {
			printed := start(t, os.Environ(), "config", name)
			require.Zero(t, printed.exit(t, time.Minute))
			file := filepath.Join(t.TempDir(), "pipeline.yaml")
			require.NoError(t, os.WriteFile(file, []byte(printed.stdout.String()), 0o600))
			ports, env := freePorts(t)
			args := []string{"--config", file}
			if name == "profiles" {
				args = append(args, "--feature-gates", "service.profilesSupport")
			}
			p := start(t, env, args...)
			p.healthy(t, ports.health)
			require.Zero(t, p.interrupt(t))
		})
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	const pipelines = "service: {extensions: [%s], pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}\n" +
		"receivers: {otlp: {protocols: {grpc: {endpoint: %q}}}}\nexporters: {debug: {}}\n"
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, c := range []struct {
		name, yaml string
		want       []string
	}{
		{
			"an extension that is not there", fmt.Sprintf(pipelines, "gpu_samples/missing", "127.0.0.1:0"),
			[]string{"gpu_samples/missing"},
		},
		{
			"a component that is not built in", "connectors: {ebpf: {}}\n" + fmt.Sprintf(pipelines, "", "127.0.0.1:0"),
			[]string{"ebpf"},
		},
		{
			"a processor of the full build", fmt.Sprintf("processors: {tail_sampling: {}}\n"+pipelines, "", "127.0.0.1:0"),
			[]string{`the processor "tail_sampling" is part of the full build only: use otelcol-gpu-full of the release, or "make build-full"`, "-tags ottl"},
		},
		{
			"a receiver of the full build", strings.Replace(fmt.Sprintf(pipelines, "", "127.0.0.1:0"), "receivers: {otlp",
				"receivers: {prometheus: {}, otlp", 1),
			[]string{`the receiver "prometheus" is part of the full build only: use otelcol-gpu-full of the release, or "make build-full"`},
		},
		{"a key that does not exist", "extensions: {gpu_samples: {retain: 1s}}\n" + fmt.Sprintf(pipelines, "gpu_samples",
			"127.0.0.1:0"), []string{"retain"}},
		{
			"a port that is taken", fmt.Sprintf(pipelines, "", taken.Addr()),
			[]string{taken.Addr().String(), "address already in use", "set another address"},
		},
		{
			"a reference to an extension that is not there",
			"processors: {gpu_derive: {samples: gpu_samples/x}}\n" +
				"service: {pipelines: {traces: {receivers: [otlp], processors: [gpu_derive], exporters: [debug]}}}\n" +
				"receivers: {otlp: {protocols: {grpc: {endpoint: \"127.0.0.1:0\"}}}}\nexporters: {debug: {}}\n",
			[]string{"gpu_samples/x", "gpu_derive"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, os.Environ(), "--config", "yaml:"+c.yaml)
			require.NotZero(t, p.exit(t, time.Minute))
			for _, w := range c.want {
				require.Contains(t, p.stderr.String(), w)
			}
			require.NotContains(t, p.stderr.String(), "panic:")
			require.NotContains(t, p.stderr.String(), "main.main", "a stack")
		})
	}
}

func TestHelpFitsAScreen(t *testing.T) {
	p := start(t, os.Environ(), "--help")
	require.Zero(t, p.exit(t, time.Minute))
	lines := strings.Split(p.stdout.String(), "\n")
	require.Less(t, len(lines), 50)
	for _, l := range lines {
		require.Less(t, len(l), 130, l)
	}
}

func TestUnknownCommandsAndPipelinesAreNamed(t *testing.T) {
	p := start(t, os.Environ(), "config", "nowhere")
	require.Equal(t, 1, p.exit(t, time.Minute))
	require.Contains(t, p.stderr.String(), "no pipeline \"nowhere\"")
	p = start(t, os.Environ(), "konvert")
	require.Equal(t, 1, p.exit(t, time.Minute))
	require.Contains(t, p.stderr.String(), "konvert")
}
