// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples_test

import (
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// A writer registers a device and writes samples; a reader queries any interval.
func ExampleNewStore() {
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	w, err := store.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-1", Interval: time.Second})
	if err != nil {
		panic(err)
	}
	start := time.Now().Add(-time.Minute).UnixNano()
	for i := range 5 {
		s := devicesamples.Sample{Time: start + int64(i)*int64(time.Second)}
		s.Set(devicesamples.Power, 300+100*float64(i))
		s.Set(devicesamples.Energy, 350*float64(i))
		w.Write([]devicesamples.Sample{s})
	}

	v := store.Acquire()
	defer v.Release()
	d, _ := v.Lookup("GPU-1")
	begin, end := start+int64(500*time.Millisecond), start+int64(2500*time.Millisecond)
	watts, coverage := d.Mean(devicesamples.Power, begin, end)
	joules, _ := d.Integral(devicesamples.Energy, begin, end)
	fmt.Printf("%.0f W, %.0f J, coverage %.0f\n", watts, joules, coverage)
	// Output: 450 W, 700 J, coverage 1
}
