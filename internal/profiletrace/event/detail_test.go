// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNamesAreBounded(t *testing.T) {
	n := newNames(200)
	a := n.ID("a")
	assert.Equal(t, a, n.Bytes([]byte("a")))
	assert.Equal(t, "a", n.Name(a))
	n.ID("b")
	n.ID("c")
	assert.Zero(t, n.ID("d"), "no room")
	assert.Equal(t, int64(1), n.Over)
	assert.Equal(t, a, n.ID("a"), "known names stay known")
}

func TestDetailSurvivesItsRecord(t *testing.T) {
	d := Detail{
		Step: -3, HasStep: true, Bytes: 7, HasBytes: true, Direction: "peer_to_peer", HostMemory: "pinned",
		Grid: [3]int64{1, 2, 3}, Block: [3]int64{4, 5, 6}, HasGrid: true,
		Registers: 8, SharedMemory: 9, HasResources: true, BlocksPerSM: .5, WarpsPerSM: 1.5, Occupancy: .25,
		HasOccupancy: true, Collective: "all_reduce", Group: "g", GroupSize: 2,
		GroupID: 31, Sequence: 32, HasSequence: true, Peer: 33, HasPeer: true,
		ElementType: "Float", InElements: 10, OutElements: 11, Graph: 12, GraphNode: 1 << 40, WholeGraph: true, FLOPs: 1e15,
		Precision: "bf16", Shapes: "[[1]]", Types: "[]", Domain: "D", Payload: "1",
		PayloadText: "{}", TraceParent: "00", MemoryDevice: -1, MemoryUsage: 13, HasMemoryUsage: true,
		Traffic: 2e9, Elements: 1e6, Launches: 14, Signature: 15, Category: "c", Requests: 16, RequestsLost: 17, Scalars: 18,
		Operator: 19, Modules: 20,
	}
	for i := range reflect.TypeFor[Detail]().NumField() {
		assert.False(t, reflect.ValueOf(d).Field(i).IsZero(), reflect.TypeFor[Detail]().Field(i).Name)
	}
	var back Detail
	back.Decode(d.AppendTo(nil))
	assert.Equal(t, d, back)
	assert.Empty(t, (&Detail{}).AppendTo(nil), "what is not stated takes no room")
}

func FuzzDetail(f *testing.F) {
	d := Detail{Shapes: "x", HasGrid: true, FLOPs: 1}
	f.Add(d.AppendTo(nil))
	f.Add([]byte{tagDirection, 200, 1})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var d Detail
		d.Decode(b)
	})
}
