// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml/nvmltest"
)

// TestLayoutsEqualNVIDIAsHeaders compiles a program that prints the layout of NVIDIA's structures.
func TestLayoutsEqualNVIDIAsHeaders(t *testing.T) {
	var (
		c connectParams
		e migEntity
		h migHierarchy
		g metricGroup
		m metricGroups
		f fieldMeta
		v fieldValue
		p process
		a migAttributes
	)
	layouts := []struct {
		structure, member string
		got               uintptr
	}{
		{"dcgmConnectV2Params_v2", "", unsafe.Sizeof(c)},
		{"dcgmConnectV2Params_v2", "addressIsUnixSocket", unsafe.Offsetof(c.unix)},
		{"dcgmMigHierarchyInfo_v2", "", unsafe.Sizeof(e)},
		{"dcgmMigHierarchyInfo_v2", "parent", unsafe.Offsetof(e.parent)},
		{"dcgmMigHierarchyInfo_v2", "info.nvmlInstanceId", unsafe.Offsetof(e.gpuInstance)},
		{"dcgmMigHierarchyInfo_v2", "info.nvmlComputeInstanceId", unsafe.Offsetof(e.computeInstance)},
		{"dcgmMigHierarchyInfo_v2", "info.nvmlProfileSlices", unsafe.Offsetof(e.slices)},
		{"dcgmMigHierarchy_v2", "", unsafe.Sizeof(h)},
		{"dcgmMigHierarchy_v2", "count", unsafe.Offsetof(h.count)},
		{"dcgmMigHierarchy_v2", "entityList", unsafe.Offsetof(h.list)},
		{"dcgmProfMetricGroupInfo_v2", "", unsafe.Sizeof(g)},
		{"dcgmProfMetricGroupInfo_v2", "numFieldIds", unsafe.Offsetof(g.n)},
		{"dcgmProfMetricGroupInfo_v2", "fieldIds", unsafe.Offsetof(g.fields)},
		{"dcgmProfGetMetricGroups_v3", "", unsafe.Sizeof(m)},
		{"dcgmProfGetMetricGroups_v3", "gpuId", unsafe.Offsetof(m.gpu)},
		{"dcgmProfGetMetricGroups_v3", "numMetricGroups", unsafe.Offsetof(m.n)},
		{"dcgmProfGetMetricGroups_v3", "metricGroups", unsafe.Offsetof(m.list)},
		{"dcgm_field_meta_t", "fieldId", unsafe.Offsetof(f.id)},
		{"dcgm_field_meta_t", "fieldType", unsafe.Offsetof(f.typ)},
		{"dcgmFieldValue_v1", "", unsafe.Sizeof(v)},
		{"dcgmFieldValue_v1", "fieldId", unsafe.Offsetof(v.field)},
		{"dcgmFieldValue_v1", "fieldType", unsafe.Offsetof(v.typ)},
		{"dcgmFieldValue_v1", "status", unsafe.Offsetof(v.status)},
		{"dcgmFieldValue_v1", "ts", unsafe.Offsetof(v.ts)},
		{"dcgmFieldValue_v1", "value", unsafe.Offsetof(v.value)},
		{"dcgmRunningProcess_v1", "pid", unsafe.Offsetof(p.pid)},
		{"dcgmRunningProcess_v1", "memoryUsed", unsafe.Offsetof(p.memory)},
		{"dcgmDeviceMigAttributes_v1", "", unsafe.Sizeof(a)},
		{"dcgmDeviceMigAttributes_v1", "migDevicesCount", unsafe.Offsetof(a.count)},
		{"dcgmDeviceMigAttributes_v1", "migAttributesInfo.gpuInstanceId", unsafe.Offsetof(a.gpuInstance)},
		{"dcgmDeviceMigAttributes_v1", "migAttributesInfo.computeInstanceId", unsafe.Offsetof(a.computeInstance)},
		{"dcgmDeviceMigAttributes_v1", "migAttributesInfo.multiprocessorCount", unsafe.Offsetof(a.multiprocessors)},
		{"dcgmConnectV2Params_version", "number", uintptr(version[connectParams](2))},
		{"dcgmMigHierarchy_version2", "number", uintptr(version[migHierarchy](2))},
		{"dcgmProfGetMetricGroups_version3", "number", uintptr(version[metricGroups](3))},
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no C compiler: ", err)
	}
	headers, err := nvmltest.Headers()
	require.NoError(t, err)
	var source, want strings.Builder
	source.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include \"dcgm_structs.h\"\n#include \"dcgm_fields.h\"\nint main(void) {\n")
	for _, l := range layouts {
		value := fmt.Sprintf("offsetof(%s, %s)", l.structure, l.member)
		switch l.member {
		case "":
			value = fmt.Sprintf("sizeof(%s)", l.structure)
		case "number":
			value = l.structure
		}
		fmt.Fprintf(&source, "printf(\"%s %s %%zu\\n\", (size_t)(%s));\n", l.structure, l.member, value)
		fmt.Fprintf(&want, "%s %s %d\n", l.structure, l.member, l.got)
	}
	source.WriteString("}\n")
	dir := t.TempDir()
	file, program := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	require.NoError(t, os.WriteFile(file, []byte(source.String()), 0o600))
	out, err := exec.Command(gcc, "-I"+headers, "-o", program, file).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(program).Output()
	require.NoError(t, err)
	assert.Equal(t, want.String(), string(out))
}
