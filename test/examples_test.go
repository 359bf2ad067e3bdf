// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// stubCUDA builds the library's test stub of libcuda, whose kernels compute on the host.
func stubCUDA(t *testing.T) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the stub of libcuda cannot be built")
	}
	path := filepath.Join(t.TempDir(), "libcuda.so")
	source := filepath.Join("..", "gpuspan", "internal", "ctest", "csrc", "cuda.c")
	out, err := exec.Command(gcc, "-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-o", path, source,
		"-lm", "-lpthread").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// Every example sends its telemetry to `otelcol-gpu check`, which must find no violations.
// (examples/capture emits no spans; its own test checks the receiver's spans of its kernels.)
func TestExamplesPassTheCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("the examples are not built and run with -short")
	}
	binary := buildCollector(t)
	build := func(t *testing.T, name string) string {
		path, err := program.Build(filepath.Join("..", "examples", name), nil)
		require.NoError(t, err)
		return path
	}
	interpreter := func(t *testing.T, script string, modules ...string) (string, string) {
		path := os.Getenv("OTELGPU_TORCH")
		if path == "" {
			path = python(t)
		}
		if len(modules) == 0 {
			modules = []string{"torch"}
		}
		needed := "import opentelemetry.exporter.otlp.proto.http, " + strings.Join(modules, ", ")
		if exec.Command(path, "-c", needed).Run() != nil {
			t.Skipf("no Python that can %q: install into python/.venv, or set OTELGPU_TORCH", needed)
		}
		return path, filepath.Join("..", "examples", "pytorch", script)
	}
	trainer := func(script string, modules ...string) func(t *testing.T, grpc, http string) *exec.Cmd {
		return func(t *testing.T, _, http string) *exec.Cmd {
			path, script := interpreter(t, script, modules...)
			cmd := exec.Command(path, script, "--steps=5")
			cmd.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + http}
			return cmd
		}
	}
	for _, tt := range []struct {
		name  string
		spans int // at least, of GPU work
		run   func(t *testing.T, grpc, http string) *exec.Cmd
	}{
		{"httpinference", 100, func(t *testing.T, grpc, _ string) *exec.Cmd {
			return exec.Command(build(t, "httpinference"), "-simulated", "-requests=20", "-otlp=http://"+grpc)
		}},
		{"training", 20, func(t *testing.T, grpc, _ string) *exec.Cmd {
			return exec.Command(build(t, "training"), "-simulated", "-steps=25", "-otlp=http://"+grpc)
		}},
		{"foreign", 5, func(t *testing.T, grpc, _ string) *exec.Cmd {
			return exec.Command(build(t, "foreign"), "-library="+stubCUDA(t), "-otlp=http://"+grpc)
		}},
		{"PyTorch, serving", 20, func(t *testing.T, _, http string) *exec.Cmd {
			path, script := interpreter(t, "serve.py")
			cmd := exec.Command(path, script, "--requests=8")
			cmd.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + http}
			return cmd
		}},
		{"FSDP", 2 * 5, func(t *testing.T, _, http string) *exec.Cmd {
			path, script := interpreter(t, "fsdp.py")
			cmd := exec.Command(path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, "--steps=5")
			cmd.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + http, "OMP_NUM_THREADS=1"}
			return cmd
		}},
		{"Accelerate", 5, trainer("accelerate_train.py", "torch", "accelerate")},
		{"Transformers", 5, trainer("transformers_train.py", "torch", "transformers", "accelerate")},
		{"Lightning", 5, trainer("lightning_train.py", "torch", "lightning")},
		{"JAX", 5, trainer("jax_train.py", "jax")},
		{"PyTorch, training", 20, func(t *testing.T, _, http string) *exec.Cmd {
			path, script := interpreter(t, "train.py")
			cmd := exec.Command(path, script, "--steps=5")
			cmd.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + http}
			return cmd
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			grpc, http, err := freeport.Pair()
			require.NoError(t, err)
			cmd := tt.run(t, grpc, http)
			cmd.Env = append(append(os.Environ(), "PYTHONPATH="+filepath.Join("..", "python", "src"),
				"PYTHONDONTWRITEBYTECODE=1"), cmd.Env...)
			check, err := program.Start(context.WithoutCancel(t.Context()), binary, []string{"check", "--listen=" + grpc}, nil)
			require.NoError(t, err)
			defer func() { _ = check.Kill() }()
			require.NoError(t, check.WaitFor("listening", time.Minute))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			process, err := os.FindProcess(check.PID())
			require.NoError(t, err)
			require.NoError(t, process.Signal(syscall.SIGINT))
			require.NoError(t, check.Wait(time.Minute))
			said := regexp.MustCompile(`\d+ spans \((\d+) GPU-related\), .*: no violations\n$`).FindStringSubmatch(
				check.Output())
			require.NotNil(t, said, check.Output())
			n, err := strconv.Atoi(said[1])
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, tt.spans, check.Output())
		})
	}
}
