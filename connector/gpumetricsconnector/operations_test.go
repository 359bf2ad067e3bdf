// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Names that differ in a letter outside the hash, so that they replace each other in the table.
func TestOperationsOfTheSameSlotStayApart(t *testing.T) {
	x := operations{byDims: map[dims]*operation{}}
	var all []*operation
	for i := range 26 {
		b := &operation{key: dims{name: fmt.Sprintf("%c-attention", 'a'+i), kind: "section"}}
		require.Equal(t, (&dims{name: "z-attention", kind: "section"}).slot(), b.key.slot())
		require.Nil(t, x.find(&b.key))
		x.byDims[b.key] = b
		all = append(all, b)
	}
	for range 2 {
		for _, b := range all {
			d := b.key
			assert.Same(t, b, x.find(&d), d.name)
		}
	}
	other := all[3].key
	other.extra = "eu"
	assert.Nil(t, x.find(&other))
	x.clear()
	assert.Empty(t, x.byDims)
	assert.Nil(t, x.find(&all[25].key), "the operation that was found last")
}

// Slots of the operations and devices of one service rarely collide.
func TestSlotsOfAServiceAreSpread(t *testing.T) {
	var x operations
	taken := map[uint32]bool{}
	for _, name := range []string{"prefill", "decode", "attention", "mlp"} {
		for device := range 8 {
			d := dims{
				name: name, kind: "section", category: "forward",
				id: fmt.Sprintf("GPU-3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c2%d", device),
			}
			taken[d.slot()%uint32(len(x.table))] = true
		}
	}
	assert.GreaterOrEqual(t, len(taken), 20, "slots of 32")
}

// Copies with one name, to the device and back, have one series of bytes per direction.
func TestBytesHaveTheDirectionOfTheCopy(t *testing.T) {
	transfer := func(direction string, size int) attrs {
		return attrs{
			"gpu.operation.type": "copy", "gpu.duration": 0.001, "gpu.timing.source": "cuda_event", "gpu.io.size": size,
			"gpu.copy.direction": direction,
		}
	}
	a := newTest(t, nil)
	a.take(batch(t, nil,
		span{"c", 0, 1000, transfer("host_to_device", 100), 1, 0, ""},
		span{"c", 1000, 2000, transfer("device_to_host", 10), 2, 0, ""},
		span{"c", 2000, 3000, transfer("host_to_device", 1000), 3, 0, ""}), clock)
	got := map[string]any{}
	for name, v := range values(t, output(t, a, clock)) {
		if rest, ok := strings.CutPrefix(name, "gpu.operation.io"); ok {
			got[rest] = v
		}
	}
	assert.Equal(t, map[string]any{
		"[gpu.copy.direction:host_to_device gpu.operation.name:c gpu.operation.type:copy]": int64(1100),
		"[gpu.copy.direction:device_to_host gpu.operation.name:c gpu.operation.type:copy]": int64(10),
	}, got)
}
