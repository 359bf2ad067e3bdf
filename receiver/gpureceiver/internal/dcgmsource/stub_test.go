// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml/nvmltest"
)

const (
	envControl = "OTELGPU_DCGM_STUB"
	envAbsent  = "OTELGPU_DCGM_ABSENT"
)

// TestMain builds libdcgm.so.4 from testdata/stub and runs the tests again in a process whose
// loader finds it: the loader reads LD_LIBRARY_PATH only when a process starts.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envEngine) != "":
		goleak.VerifyTestMain(m)
		return
	case os.Getenv(envAbsent) != "":
		withoutLibrary()
		os.Exit(0)
	case os.Getenv(envControl) != "":
		goleak.VerifyTestMain(m)
		return
	}
	dir, err := os.MkdirTemp("", "otelgpu-dcgm-stub")
	if err == nil {
		err = buildStub(dir)
	}
	if errors.Is(err, exec.ErrNotFound) {
		fmt.Println("no C stub of DCGM, tests that need it are skipped:", err)
		goleak.VerifyTestMain(m)
		return
	}
	if err != nil {
		fmt.Println("cannot build the C stub of DCGM:", err)
		os.Exit(1)
	}
	child := exec.Command(os.Args[0], os.Args[1:]...)
	child.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir+":"+os.Getenv("LD_LIBRARY_PATH"),
		envControl+"="+filepath.Join(dir, "control"))
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = child.Run()
	_ = os.RemoveAll(dir)
	if child.ProcessState == nil {
		fmt.Println("cannot run the tests with the stub:", err)
		os.Exit(1)
	}
	os.Exit(child.ProcessState.ExitCode())
}

func buildStub(dir string) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		return err
	}
	headers, err := nvmltest.Headers()
	if err != nil {
		return err
	}
	cmd := exec.Command("gcc", "-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-I"+headers, "-Wl,-soname,libdcgm.so.4",
		"-o", filepath.Join(dir, "libdcgm.so.4"), filepath.Join("testdata", "stub", "dcgm_stub.c"), "-lpthread")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w: %s", err, out)
	}
	return nil
}

// pipes are the quantities that a receiver omits by default.
var pipes = slices.DeleteFunc(gpuquantity.All(), func(q gpuquantity.Quantity) bool { return !q.Info().Metric.Off })

// machine is the stub's configuration.
type machine map[string]any

// baseTime is a whole minute.
const baseTime = int64(1_800_000_000_000_000) // µs

// reading is how long the engine takes to read all fields of a device, in ns.
const reading = 1e6

// clock is the machine's time in µs.
var clock atomic.Int64

func (m machine) write(t testing.TB) {
	t.Helper()
	if now, ok := m["now"].(int64); ok {
		clock.Store(now)
	}
	path := os.Getenv(envControl)
	if path == "" {
		t.Skip("needs gcc to build the stub of DCGM")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "host %s\n", t.Name()) // each test has its own machine
	for k, v := range m {
		if list, ok := v.([]string); ok {
			for _, x := range list {
				fmt.Fprintf(&b, "%s %s\n", k, x)
			}
			continue
		}
		fmt.Fprintf(&b, "%s %v\n", k, v)
	}
	require.NoError(t, os.WriteFile(path+".new", []byte(b.String()), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// set changes one property.
func (m machine) set(t testing.TB, k string, v any) {
	t.Helper()
	m[k] = v
	m.write(t)
}

func (m machine) advance(t testing.TB, d time.Duration) {
	t.Helper()
	m.set(t, "now", m["now"].(int64)+d.Microseconds())
}

// left returns the watches and groups left in the host engine.
func left(t testing.TB) string { return stats(t)[0] }

// trips returns the number of round trips of the client library.
func trips(t testing.TB) int {
	n, err := strconv.Atoi(strings.TrimPrefix(stats(t)[1], "trips "))
	require.NoError(t, err)
	return n
}

func stats(t testing.TB) []string {
	t.Helper()
	b, err := os.ReadFile(os.Getenv(envControl) + ".stats")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	require.Len(t, lines, 3)
	return lines
}

func settings() Settings {
	return Settings{
		Target: "localhost:5555", Sampling: 100 * time.Millisecond, Slow: 100 * time.Millisecond, // on the test's clock
		KeepAge: 2 * time.Minute, MaxStaleness: time.Hour, Profiling: true,
	}
}

// open opens a source on the machine with a separate connection.
func open(t testing.TB, m machine, set Settings) *source {
	t.Helper()
	m.write(t)
	s := newSource(set, newClient())
	if _, ok := m["now"]; ok {
		s.now = func() time.Time { return time.UnixMicro(clock.Load()) }
	}
	require.NoError(t, s.Open())
	t.Cleanup(func() {
		m["hang"], m["down"] = 0, 0
		m.write(t)
		require.NoError(t, s.Close())
	})
	return s
}

func read(t testing.TB, s *source) *gpudata.Batch {
	t.Helper()
	s.session.checked = time.Time{} // periodic checks are due
	b := &gpudata.Batch{}
	require.NoError(t, s.Read(b))
	return b
}

// of returns the values of one quantity of one device.
func of(b *gpudata.Batch, device int, q gpuquantity.Quantity) (list []gpudata.Value) {
	for _, v := range b.Values {
		if int(v.Device) == device && v.Quantity == q {
			list = append(list, v)
		}
	}
	return list
}

// withoutLibrary runs a source in a process without a DCGM library, in which any call after the
// failed Init would end the process.
func withoutLibrary() {
	s := New(Settings{
		Target: "localhost:5555", Sampling: time.Second, Slow: time.Second, KeepAge: time.Minute,
		MaxStaleness: time.Minute,
	})
	for range 3 {
		fmt.Println(s.Open())
		fmt.Println(len(s.Devices()), s.Close())
	}
}
