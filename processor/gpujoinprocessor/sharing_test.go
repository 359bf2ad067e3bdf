// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"math/rand/v2"
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
		assert.InDelta(t, 0.95*15, got[3].Attributes().AsRaw()["gpu.energy_error"], 1, "its distribution in the window is unknown")
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

// Process A runs in bursts, B in others and whenever A does not: alone each has 100 W, together half
// of it. Spans of A are its bursts, in pieces of each length.
func TestSpansOnASharedDeviceAreInsideTheirStatedError(t *testing.T) {
	const tick, seconds = 0.001, 100
	for _, length := range []float64{0.01, 0.1, 1, 10} {
		node(t, 1, func(r *rig, zero time.Time, ids []string) {
			random := rand.New(rand.NewPCG(uint64(1000*length), 3))
			at := func(i int) time.Time { return zero.Add(time.Duration(float64(i) * tick * 1e9)) }
			a, b := bursts(random, int(seconds/tick)), bursts(random, int(seconds/tick))
			energy := make([]float64, len(a)+1) // of A
			for i := range a {
				watts := 0.0
				if a[i] {
					watts = 100
					if b[i] {
						watts = 50
					}
				}
				energy[i+1] = energy[i] + watts*tick
			}
			user := &devicesamples.DeviceUse{PID: 4711, ContainerID: "c1"}
			const window = 250
			for i := 0; i < len(a); i += window {
				share := (energy[i+window] - energy[i]) / (100 * window * tick)
				share = math.Round(100*share) / 100
				r.store.(devicesamples.ShareWriter).AddShares(ids[0], devicesamples.ShareWindow{
					From: at(i).UnixNano(), To: at(i + window).UnixNano(),
					Users: []devicesamples.DeviceShare{{DeviceUse: user, Share: share, Error: 0.005, Resident: share}},
				})
			}
			type span struct{ from, to int }
			var spans []span
			sent := 0
			send := func(until int) {
				td := newTraces("a")
				td.rs.Resource().Attributes().PutStr("container.id", "c1")
				for ; sent < len(spans) && spans[sent].to <= until; sent++ {
					s := spans[sent]
					td.gpu(uint64(sent+1), 0, at(s.from), at(s.to)).Attributes().PutStr("hw.id", ids[0])
				}
				r.consume(td.Traces)
			}
			for i := 0; i < len(a); {
				for i < len(a) && !a[i] {
					i++
				}
				from := i
				for i < len(a) && a[i] && i-from < int(length/tick) {
					i++
				}
				if i > from {
					spans = append(spans, span{from, i})
				}
			}
			for second := range seconds {
				time.Sleep(time.Second)
				send((second + 1) * 1000)
			}
			time.Sleep(10 * time.Second)
			inside, stated := 0, 0
			got := r.spans()
			for i, s := range spans {
				attrs := got[uint64(i+1)].Attributes()
				v, ok := attrs.Get("gpu.energy")
				if !ok {
					continue
				}
				stated++
				bound := 0.05 * v.Double()
				if e, ok := attrs.Get("gpu.energy_error"); ok {
					bound = e.Double()
				}
				if math.Abs(v.Double()-(energy[s.to]-energy[s.from])) <= bound+1e-6 {
					inside++
				}
			}
			t.Logf("%g s: %d spans, %d with energy, %d inside", length, len(spans), stated, inside)
			assert.GreaterOrEqual(t, float64(inside), 0.95*float64(stated), "%g s", length)
			assert.GreaterOrEqual(t, float64(stated), 0.95*float64(len(spans)), "%g s", length)
		})
	}
}

// bursts returns when a process runs, in ticks, with times of 5 ms to 2 s.
func bursts(r *rand.Rand, n int) []bool {
	runs := make([]bool, n)
	for i := 0; i < n; {
		for end := i + int(5*math.Pow(400, r.Float64())); i < min(end, n); i++ {
			runs[i] = true
		}
		i += int(5 * math.Pow(400, r.Float64()))
	}
	return runs
}
