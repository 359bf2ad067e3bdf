// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// A device of 100 W: process 4711 has spans and 30 % of the energy, its neighbor has none.
func TestASpanHasNothingOfANeighborWithoutSpans(t *testing.T) {
	node(t, 1, func(r *rig, zero time.Time, ids []string) {
		trainer := &devicesamples.DeviceUse{PID: 4711, LocalPID: 7, ContainerID: "c1", PodUID: "u1"}
		neighbor := &devicesamples.DeviceUse{PID: 4712, LocalPID: 7, ContainerID: "c2", PodUID: "u2"}
		at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * 1e9)) }
		for i := range 8 {
			r.store.(devicesamples.ShareWriter).AddShares(ids[0], devicesamples.ShareWindow{
				From: at(float64(i)).UnixNano(), To: at(float64(i + 1)).UnixNano(),
				Users: []devicesamples.DeviceShare{
					{DeviceUse: trainer, Share: 0.3, Error: 0.03, Resident: 0.3},
					{DeviceUse: neighbor, Share: 0.5, Error: 0.05, Resident: 0.5},
				},
			})
		}
		time.Sleep(5500 * time.Millisecond)
		td := newTraces("a")
		td.rs.Resource().Attributes().PutStr("container.id", "c1")
		td.rs.Resource().Attributes().PutInt("process.pid", 7)
		for i, end := range []float64{3, 4, 5.15} { // seconds 1 to 4 whole, half of the kernels of second 5
			td.gpu(uint64(i+1), 0, at([]float64{1, 3, 5}[i]), at(end)).Attributes().PutStr("hw.id", ids[0])
		}
		r.consume(td.Traces)
		time.Sleep(10 * time.Second)
		got := r.spans()
		require.Len(t, got, 3)
		assert.InDelta(t, 60, energy(t, got[1]), 1e-6)
		assert.InDelta(t, 30, energy(t, got[2]), 1e-6)
		assert.InDelta(t, 15, energy(t, got[3]), 1e-6, "half of the kernels ran inside of it")
		stated := got[1].Attributes().AsRaw()["gpu.energy_error"]
		assert.InDelta(t, 8.5, stated, 1, "a tenth of each window, and the error of the curve")
		assert.InDelta(t, 0.7*15, got[3].Attributes().AsRaw()["gpu.energy_error"], 1, "its distribution in the window is unknown")
		// The process has 8 windows of 30 J.
		assert.InDelta(t, 105, r.energy("attributed"), 1e-6)
		assert.InDelta(t, 8*30-105, r.energy("rest"), 1e-6)
		assert.InDelta(t, 8*70, r.energy("others"), 1e-6)
	})
}

func TestUsersOfADeviceMatchTheProcessesOfSpans(t *testing.T) {
	one := devicesamples.DeviceUse{PID: 100, LocalPID: 7, ContainerID: "c1", PodUID: "u1", Namespace: "ns", Pod: "p"}
	onHost := devicesamples.DeviceUse{PID: 200, Parents: []int64{150, 120}}
	for name, c := range map[string]struct {
		user     devicesamples.DeviceUse
		workload devicesamples.Workload
		want     devicesamples.Match
	}{
		"the process in its container":         {one, devicesamples.Workload{ContainerID: "c1", PID: 7}, devicesamples.MatchProcess},
		"another process of the container":     {one, devicesamples.Workload{ContainerID: "c1", PID: 8}, devicesamples.MatchGroup},
		"the container":                        {one, devicesamples.Workload{ContainerID: "c1"}, devicesamples.MatchGroup},
		"another container of the pod":         {one, devicesamples.Workload{ContainerID: "c2", PodUID: "u1"}, devicesamples.MatchNone},
		"the pod":                              {one, devicesamples.Workload{PodUID: "u1"}, devicesamples.MatchGroup},
		"the pod by name":                      {one, devicesamples.Workload{Namespace: "ns", Pod: "p"}, devicesamples.MatchGroup},
		"a pod of that name elsewhere":         {one, devicesamples.Workload{Namespace: "other", Pod: "p"}, devicesamples.MatchNone},
		"a process without a container":        {one, devicesamples.Workload{PID: 7}, devicesamples.MatchNone},
		"the host's process":                   {onHost, devicesamples.Workload{PID: 200}, devicesamples.MatchProcess},
		"a child of the host's process":        {onHost, devicesamples.Workload{PID: 120}, devicesamples.MatchChild},
		"a container, and a host's process":    {onHost, devicesamples.Workload{PID: 200, ContainerID: "c1"}, devicesamples.MatchNone},
		"a process of another host":            {onHost, devicesamples.Workload{PID: 200, HostName: "node2"}, devicesamples.MatchNone},
		"a service that identifies no process": {onHost, devicesamples.Workload{HostName: "node1"}, devicesamples.MatchNone},
	} {
		assert.Equal(t, c.want, c.user.Match(&c.workload, "", "node1"), name)
	}
}
