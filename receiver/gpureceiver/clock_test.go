// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// clockRig simulates a source whose clock differs from this machine's.
type clockRig struct {
	r   *gpuReceiver
	now time.Time
}

// seconds reads once a second; off returns the source's clock minus this machine's, and whether
// there is a sample.
func (c *clockRig) seconds(n int, off func(second int) (time.Duration, bool)) {
	for i := range n {
		c.now = c.now.Add(time.Second)
		b := &gpudata.Batch{}
		if d, ok := off(i); ok {
			b.Add(0, gpuquantity.Power, c.now.Add(d).UnixNano(), 300)
		}
		b.Add(0, gpuquantity.XIDs, c.now.UnixNano(), 0)
		c.r.checkClock(sourceDCGM, 1, b, c.now)
		c.r.notice(sourceDCGM, b)
	}
}

func TestSamplesWithWrongTimesAreReportedOnce(t *testing.T) {
	const text = "Samples are not of the present time; devices=[all]"
	at := func(d time.Duration, ok bool) func(int) (time.Duration, bool) {
		return func(i int) (time.Duration, bool) { return d + time.Duration(i)*time.Millisecond, ok }
	}
	for name, c := range map[string]struct {
		off  func(int) (time.Duration, bool)
		want string
	}{
		"stopped": {at(0, false), "no new sample for more than 10s"},
		"ahead":   {at(time.Hour, true), "samples are 1h0m0s ahead of this machine's clock"},
		"behind":  {at(-time.Hour, true), "samples are 1h0m0s behind this machine's clock"},
	} {
		t.Run(name, func(t *testing.T) {
			r, logs, tel := loggedReceiver(t)
			rig := &clockRig{r, time.Now()}
			rig.seconds(30, at(-200*time.Millisecond, true))
			assert.Empty(t, logs(), "as it should be")
			rig.seconds(60, c.off)
			got := logs()
			require.Len(t, got, 1)
			assert.True(t, strings.HasPrefix(got[0], "warn "+text+"; error="+c.want), got[0])
			rig.seconds(30, at(-200*time.Millisecond, true))
			assert.Equal(t, []string{"info Samples are of the present time again; devices=[all]"}, logs())
			m, err := tel.GetMetric("otelcol_receiver_gpu_failures")
			require.NoError(t, err)
			points := m.Data.(metricdata.Sum[int64]).DataPoints
			require.Len(t, points, 1)
			assert.EqualValues(t, 1, points[0].Value)
			reason, _ := points[0].Attributes.Value(attribute.Key("reason"))
			assert.Equal(t, "clock", reason.AsString())
		})
	}
}

func TestTimesAreTestedAtTheirBounds(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		off   time.Duration
		wrong bool
	}{
		{999 * time.Millisecond, false},
		{1001 * time.Millisecond, true},
		{-9999 * time.Millisecond, false},
		{-10_001 * time.Millisecond, true},
	} {
		var state clockState
		b := &gpudata.Batch{}
		b.Add(0, gpuquantity.Power, now.Add(c.off).UnixNano(), 300)
		assert.Equal(t, c.wrong, state.take(b, 1, now, 100*time.Millisecond) != nil, c.off)
	}
}

func TestLostDevicesAndLongIntervalsAreNoFaultOfTheClock(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		devices  int
		health   []gpudata.Health
		sampling time.Duration
		wrong    bool
	}{
		"one hangs":     {2, []gpudata.Health{gpudata.HealthFailed, gpudata.HealthUnknown}, time.Second, true},
		"all lost":      {2, []gpudata.Health{gpudata.HealthFailed, gpudata.HealthSilent}, time.Second, false},
		"no device":     {0, nil, time.Second, false},
		"long interval": {1, nil, time.Minute, false},
	} {
		var state clockState
		state.reset(now)
		err := state.take(&gpudata.Batch{Health: c.health}, c.devices, now.Add(time.Minute), c.sampling)
		assert.Equal(t, c.wrong, err != nil, name)
	}
}
