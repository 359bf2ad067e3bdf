// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build hardware

package cuda_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/cuda"
)

// TestHardware runs on a machine with an NVIDIA GPU and prints rows for docs/hardware.md as it
// finds them. A short timeout shortens its longer measurements:
//
//	go test -tags hardware -run '^TestHardware$' -v -timeout 10m ./cuda
func TestHardware(t *testing.T) {
	b, err := cuda.Open()
	if err != nil {
		fmt.Println("skipped:", err)
		t.Skip(err)
	}
	defer func() { require.NoError(t, b.Close()) }()
	c := &checks{T: t, back: b, drv: b.Driver(), patience: time.Minute, print: os.Stdout}
	if deadline, ok := t.Deadline(); ok {
		c.patience = min(c.patience, time.Until(deadline)/6) // all takes less than five times that
	}
	c.all()
	c.nsys()
}

// nsys verifies that a profile contains the ranges of a program without cgo.
func (c *checks) nsys() {
	nsys, err := exec.LookPath("nsys")
	if err != nil {
		c.row("nsys sees NVTX ranges", "no nsys here")
		return
	}
	dir := c.TempDir()
	program, report := filepath.Join(dir, "training"), filepath.Join(dir, "report")
	build := exec.Command("go", "build", "-o", program, "./training")
	build.Dir = filepath.Join("..", "..", "examples")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(c, err, string(out))
	config := filepath.Join(dir, "train.yaml")
	require.NoError(c, os.WriteFile(config, []byte("nvtx: true\n"), 0o600))
	out, err = exec.Command(nsys, "profile", "-t", "cuda,nvtx", "-o", report, program, "-config", config).CombinedOutput()
	require.NoError(c, err, string(out))
	for _, name := range []string{"nvtx_sum", "nvtxsum"} { // the second until 2022
		if out, err = exec.Command(nsys, "stats", "--report", name,
			report+".nsys-rep").CombinedOutput(); strings.Contains(string(out), "convolutions") {
			break
		}
	}
	require.NoError(c, err, string(out))
	c.row("nsys sees NVTX ranges of a program without cgo", "%v", strings.Contains(string(out), "convolutions"))
}
