// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// If a span already has one of the attributes, its value is replaced: tests each attribute on spans
// that receive all of them.
func TestAttributesThatAreThereGetTheNewValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		r := newRig(t).join(func(c *Config) { c.Ordinals = map[string]string{"3": gpu0} })
		defer r.close()
		d := nominal
		d.Source = "dcgm"
		w := r.device(d)
		r.run(w, func(now time.Time, s *devicesamples.Sample) {
			for f := range devicesamples.NumFields {
				s.Set(devicesamples.Field(f), 0.5)
			}
			s.Set(devicesamples.Energy, 300*now.Sub(zero).Seconds())
			s.Set(devicesamples.Power, 300)
			s.Set(devicesamples.Throttle, float64(devicesamples.ThrottleSWPowerCap))
		})
		time.Sleep(2 * createDefaultConfig().(*Config).Settle) // so all of its time is late
		td := newTraces("a")
		once := map[string]int{}
		for i, name := range written {
			if name == "gpu.join.coverage" { // which passes unchanged
				continue
			}
			start, id := float64(i)*0.2, uint64(2*i+1)
			w.WriteEvents([]devicesamples.Event{
				{Time: at(start + 0.1).UnixNano(), Kind: devicesamples.EventXID, Code: 63},
				{Time: at(start + 0.1).UnixNano(), Kind: devicesamples.EventECCUncorrected, Count: 1},
			})
			td.gpu(id+1, id, at(start+0.05), at(start+0.15))
			s := td.gpu(id, 0, at(start), at(start+0.2))
			if i%2 == 0 { // hw.id is written too
				s.Attributes().PutInt("hw.id", 0)
				s.Attributes().PutInt("gpu.device.ordinal", 3)
			}
			s.Attributes().PutStr(name, "another's")
			s.Attributes().PutStr("last", "one")
			once[name] = int(id)
		}
		r.consume(td.Traces)
		time.Sleep(10 * time.Second)
		spans := r.spans()
		for name, id := range once {
			a := spans[uint64(id)].Attributes()
			var names []string
			for k := range a.All() {
				names = append(names, k)
			}
			slices.Sort(names)
			assert.Equal(t, slices.Compact(slices.Clone(names)), names, "no name twice")
			for _, k := range written {
				_, there := a.Get(k)
				require.True(t, there, "%s beside %s", k, name)
			}
			v, _ := a.Get(name)
			if name == "gpu.memory.usage" {
				assert.Equal(t, "another's", v.Str(), "the producer's own is kept")
			} else {
				assert.NotEqual(t, "another's", v.Str(), name)
			}
			assert.Equal(t, gpu0, a.AsRaw()["hw.id"])
		}
	})
}
