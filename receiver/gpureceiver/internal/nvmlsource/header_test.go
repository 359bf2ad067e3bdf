// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
)

// The bits and names of throttle reasons, against the header that go-nvml brings.
func TestThrottleReasonsAgainstNVMLsHeader(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Skip("cannot find go-nvml's header: ", err)
	}
	header, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "pkg", "nvml", "nvml.h"))
	require.NoError(t, err)
	word := regexp.MustCompile(`([a-z])([A-Z])`)
	var all gpusamplesextension.ThrottleReason
	for _, m := range regexp.MustCompile(`#define nvmlClocks(?:Event|Throttle)Reason(\w+)\s+0x([0-9A-Fa-f]+)LL`).FindAllStringSubmatch(string(header), -1) {
		bit, err := strconv.ParseUint(m[2], 16, 64)
		require.NoError(t, err)
		if bit == 0 || m[1] == "GpuIdle" { // an idle device is not held back
			continue
		}
		r := gpusamplesextension.ThrottleReason(bit)
		assert.Equal(t, strings.ToLower(word.ReplaceAllString(m[1], "${1}_$2")), r.String())
		all |= r
	}
	assert.Equal(t, gpusamplesextension.ThrottleReasons, all)
}
