// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// A sender repeats a batch of points while another exporter of the pipeline refuses it, and sends
// the later ones and their spans after the outage. The spans have all of their energy, and nothing
// is attributed twice.
func TestPointsThatAreRepeatedAndDelayedGiveTheSameEnergy(t *testing.T) {
	const (
		length = 50 * time.Millisecond
		points = 100 * time.Millisecond // of the device in one batch
		watts  = 300
		lead   = 2 * time.Second
		end    = 14 * time.Second
	)
	for name, outage := range map[string][2]time.Duration{
		"none": {}, "short": {4 * time.Second, 4300 * time.Millisecond}, "long": {5 * time.Second, 11 * time.Second},
		"from the start": {0, 9 * time.Second},
	} {
		for _, power := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					zero := time.Now()
					r := newRig(t).join(func(c *Config) { c.Settle, c.MaxWait = 400*time.Millisecond, 700*time.Millisecond })
					defer r.close()
					w := r.device(devicesamples.Device{ID: gpu0, Refresh: time.Hour, PowerWindow: 100 * time.Millisecond})
					write := func(to time.Duration) {
						for at := to - points + points/10; at <= to; at += points / 10 {
							s := devicesamples.Sample{Time: zero.Add(at).UnixNano()}
							s.Set(devicesamples.Energy, watts*(at+time.Hour).Seconds())
							if power {
								s.Set(devicesamples.Power, watts)
							}
							w.Write([]devicesamples.Sample{s})
						}
					}
					id, sent := uint64(0), lead
					for at := points; at < end; at += points {
						time.Sleep(time.Until(zero.Add(at)))
						if at > outage[0] && at < outage[1] {
							if at > 2*points {
								write(at - at%points - points) // what has arrived comes again
							}
							time.Sleep(time.Until(zero.Add(outage[1])))
						}
						write(at)
						if at%(3*points) == 0 {
							write(at - points)
							write(at)
						}
						for ; sent+length <= at; sent += length {
							id++
							td := newTraces("a")
							td.gpu(id, 0, zero.Add(sent), zero.Add(sent+length))
							r.consume(td.Traces)
						}
					}
					for at := end; at < end+time.Second; at += points {
						time.Sleep(time.Until(zero.Add(at)))
						write(at)
					}
					time.Sleep(5 * time.Second)
					synctest.Wait()
					got, sum := r.spans(), 0.
					require.Len(t, got, int(id))
					for _, s := range got {
						if v, ok := s.Attributes().Get("gpu.energy"); ok {
							sum += v.Double()
						}
					}
					all := watts * length.Seconds() * float64(id)
					assert.InEpsilon(t, all, sum+r.withheld(), 1e-9)
					assert.Zero(t, r.withheld())
					assert.InEpsilon(t, all, r.energy("attributed")+r.energy("late"), 1e-9)
					counted := watts * (end - points + time.Second - points/10).Seconds()
					device := r.energy("attributed") + r.energy("unattributed") + r.energy("uncovered")
					// The first reading is up to half a period old: how many readings the first
					// look sees decides it.
					age := watts * (points / 20).Seconds()
					assert.LessOrEqual(t, device, (counted+age)*(1+1e-9))
					assert.Greater(t, device, all, "and what is between the spans and after them")
					if name != "from the start" { // energy is counted from the first tick on
						assert.InDelta(t, counted-watts*.59, device, 1e-6)
					}
				})
			})
		}
	}
}
