// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Compares the offsets in this package with the offsets of the fields in the shim's header, from a
// C compiler.
func TestOffsetsEqualTheHeader(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the shim's header cannot be compiled")
	}
	fields := map[string]int{
		"contexts_head": offContextsHead, "names_used": offNamesUsed, "dropped_full": offDroppedFull, "dropped_budget": offDroppedBudget,
		"dropped_cupti": offDroppedCUPTI,
		"names_dropped": offNamesDropped, "state": offState, "answered": offAnswered,
		"reason":        offReason,
		"cupti_version": offCUPTIVersion, "message": offMessage, "tail": offTail,
		"request": offRequest, "kinds": offKinds,
		"window": offWindow, "budget": offBudget, "cancel": offCancel, "service": offService,
		"devices": offDevices, "limits": offLimits,
	}
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include \"ring.h\"\nint main(void) {\n")
	for name := range fields {
		fmt.Fprintf(&b, "\tprintf(\"%s %%zu\\n\", offsetof(struct header, %s));\n", name, name)
	}
	b.WriteString("\treturn 0;\n}\n")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "offsets.c"), filepath.Join(dir, "offsets")
	require.NoError(t, os.WriteFile(source, []byte(b.String()), 0o600))
	out, err := exec.Command(gcc, "-std=gnu11", "-I", filepath.Join("..", "..", "shim"), "-o", program,
		source).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(program).Output()
	require.NoError(t, err)
	got := map[string]int{}
	for line := range strings.Lines(string(out)) {
		var name string
		var at int
		_, err := fmt.Sscan(line, &name, &at)
		require.NoError(t, err)
		got[name] = at
	}
	assert.Equal(t, fields, got)
}
