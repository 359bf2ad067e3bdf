// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Fields of dcgm-exporter that the gpu receiver watches by default.
var exporterFields = strings.Fields(`
	DEV_SM_CLOCK DEV_CLOCKS_EVENT_REASONS DEV_TOTAL_ENERGY_CONSUMPTION DEV_BOARD_POWER_RAW_WATTS DEV_GPU_UTIL_RATIO
	DEV_FB_USED DEV_MEM_CLOCK DEV_GPU_TEMP_CELSIUS DEV_VIDEO_CLOCK DEV_PCIE_REPLAY_TOTAL DEV_ENC_UTIL DEV_DEC_UTIL
	DEV_FB_TOTAL DEV_FB_RESERVED DEV_ECC_SBE_VOL_TOTAL DEV_ECC_DBE_VOL_TOTAL DEV_PAGE_RETIRED_SBE_TOTAL
	DEV_PAGE_RETIRED_DBE_TOTAL DEV_PAGE_RETIRED_PENDING DEV_ROW_REMAP_UNCORRECTABLE_TOTAL
	DEV_ROW_REMAP_CORRECTABLE_TOTAL DEV_ROW_REMAP_FAILED DEV_ROW_REMAP_PENDING DEV_NVLINK_CRC_FLIT_ERROR_TOTAL
	DEV_XID_ERROR PROF_GR_ENGINE_UTIL_RATIO PROF_SM_UTIL_RATIO PROF_SM_OCCUPANCY_RATIO PROF_TENSOR_UTIL_RATIO
	PROF_DRAM_UTIL_RATIO PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES PROF_NVLINK_TX_BYTES PROF_NVLINK_RX_BYTES`)

// TestCostAgainstDCGMExporter runs NVIDIA's dcgm-exporter (OTELGPU_DCGM_EXPORTER names the program)
// and otelcol-gpu concurrently on the stub of DCGM's library, with the same boards and fields, both
// scraped over HTTP. It reports the CPU time of both processes over a minute. The library's round
// trips clear 4 MiB each, as the real one's do; the host engine is excluded.
func TestCostAgainstDCGMExporter(t *testing.T) {
	exporter := os.Getenv("OTELGPU_DCGM_EXPORTER")
	if exporter == "" {
		t.Skip("OTELGPU_DCGM_EXPORTER names no dcgm-exporter (github.com/NVIDIA/dcgm-exporter)")
	}
	dir := t.TempDir()
	collector := filepath.Join(dir, "otelcol-gpu")
	build(t, "..", "go", "build", "-o", collector, "./cmd/otelcol-gpu")
	headers := build(t, ".", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm")
	build(t, ".", "gcc", "-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-I"+filepath.Join(headers, "pkg", "dcgm"),
		"-Wl,-soname,libdcgm.so.4", "-o", filepath.Join(dir, "libdcgm.so.4"),
		"../receiver/gpureceiver/internal/dcgmsource/testdata/stub/dcgm_stub.c", "-lpthread")
	counters := write(t, dir, "counters.csv",
		"DCGM_FI_"+strings.Join(exporterFields, ", gauge, x\nDCGM_FI_")+", gauge, x\n")
	for _, boards := range []int{8, 32} {
		t.Run(fmt.Sprint(boards, " boards"), func(t *testing.T) {
			env := append(os.Environ(), "LD_LIBRARY_PATH="+dir, "OTELGPU_DCGM_STUB="+
				write(t, t.TempDir(), "control", fmt.Sprintf("host bench\ngpus %d\ngpm 0xffffffff\nfixed 1\n", boards)))
			list := []*scraped{{name: "dcgm-exporter, 1s", every: time.Second}}
			list[0].start(t, env, exporter, "-f", counters, "-a", list[0].listen(t), "-c", "1000", "-r", "localhost:5555",
				"--disable-startup-validate")
			for _, x := range []struct{ sampling, collection time.Duration }{
				{time.Second, time.Second}, {100 * time.Millisecond, time.Second}, {100 * time.Millisecond, 10 * time.Second},
			} {
				s := &scraped{name: fmt.Sprintf("gpu, samples %s, metrics %s", x.sampling, x.collection), every: x.collection}
				s.start(t, env, collector, "--config", write(t, t.TempDir(), "c.yaml", fmt.Sprintf(`
receivers: {gpu: {source: dcgm, sampling_interval: %s, collection_interval: %s, samples: gpu_samples}}
extensions: {gpu_samples: {}}
exporters: {prometheus: {endpoint: "%s"}}
service:
  extensions: [gpu_samples]
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines: {metrics: {receivers: [gpu], exporters: [prometheus]}}
`, x.sampling, x.collection, s.listen(t))))
				list = append(list, s)
			}
			for _, s := range list {
				require.Eventually(t, func() bool { return len(s.scrape()) > 20*boards }, time.Minute, time.Second, s.name)
			}
			const span = time.Minute
			for _, s := range list {
				go s.run(t, span)
			}
			for _, s := range list {
				<-s.done
				t.Logf("%-36s %5.2f %% of a core, %5.0f µs for a board and second, %d lines", s.name, s.cpu.Seconds()/span.Seconds()*100,
					float64(s.cpu.Microseconds())/span.Seconds()/float64(boards), len(s.scrape()))
			}
			// Both read the same boards.
			assert.Contains(t, strings.Join(list[0].scrape(), "\n"), `DCGM_FI_DEV_FB_USED{gpu="7"`)
			assert.Contains(t, strings.Join(list[1].scrape(), "\n"), "4.194304e+10", "40,000 MiB in use")
		})
	}
}

// scraped is a process that the test scrapes.
type scraped struct {
	name    string
	every   time.Duration
	address string
	cmd     *exec.Cmd
	cpu     time.Duration
	done    chan struct{}
}

// listen returns a free address of this machine.
func (s *scraped) listen(t *testing.T) string {
	if s.address == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s.address = l.Addr().String()
		require.NoError(t, l.Close())
	}
	return s.address
}

func (s *scraped) start(t *testing.T, env []string, args ...string) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	s.cmd, s.done = exec.Command(args[0], args[1:]...), make(chan struct{})
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = env, log, log
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, s.cmd.Process.Signal(os.Interrupt))
		_ = s.cmd.Wait()
		text, _ := os.ReadFile(log.Name())
		if t.Failed() {
			t.Logf("%s: %s", s.name, text)
		}
	})
}

// scrape returns the points that the process serves, one per line.
func (s *scraped) scrape() (points []string) {
	r, err := http.Get("http://" + s.address + "/metrics")
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			points = append(points, line)
		}
	}
	return points
}

// run scrapes the process for some time and measures its CPU time.
func (s *scraped) run(t *testing.T, span time.Duration) {
	defer close(s.done)
	before := s.used(t)
	for range span / s.every {
		s.scrape()
		time.Sleep(s.every)
	}
	s.cpu = s.used(t) - before
}

// used returns the CPU time of all threads of the process so far.
func (s *scraped) used(t *testing.T) time.Duration {
	var clock unix.Timespec
	if err := unix.ClockGettime(int32(^s.cmd.Process.Pid<<3|2), &clock); err != nil { // the process's, see clock_getcpuclockid
		t.Error(err)
	}
	return time.Duration(clock.Nano())
}

func write(t *testing.T, dir, name, text string) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// build runs a command in a folder and returns what it prints.
func build(t *testing.T, dir string, args ...string) string {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=")
	if dir == "." {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}
