// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
)

// The hardware checks measure what the stub was configured with.
func TestHardwareChecksRunOnTheStub(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	stub := ctest.CUDA(t)
	stub.Set("drift_ppm", 40)
	b := open(t, stub)
	var rows strings.Builder
	c := &checks{T: t, back: b, drv: b.Driver(), patience: 200 * time.Millisecond, print: &rows}
	c.all()
	table := rows.String()
	t.Log("\n" + table)
	require.Contains(t, table, "| relaxed mode makes a context | false |")
	require.Contains(t, table, "| tick of stamps | 32 ns")
	require.Contains(t, table, "| record on a thread without context | status 0 |")
	require.Contains(t, table, "| query in relaxed mode during a global capture | status 0, capture ends with 0 |")
	require.Contains(t, table, "| the same without relaxed mode | status 900, capture ends with 901 |")
}
