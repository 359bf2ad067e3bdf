// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import "time"

// Options are the assumptions and limits of a [Map]. The zero value of a field means its default.
type Options struct {
	// Window is how long an anchor counts. Longer windows measure the rate better and let its changes in.
	// Default 15 s.
	Window time.Duration
	// MaxAnchors bounds the anchors in the window; the oldest go first. Default 256.
	MaxAnchors int
	// Tick is the resolution to which the device truncates event stamps. Default 500 ns, which the CUDA
	// documentation states for cuEventElapsedTime; negative means none.
	Tick time.Duration
	// MaxDrift is the largest difference in rate between the two clocks, in parts per million. Default 500.
	MaxDrift float64
	// MaxRateChange is by how much the difference in rate may change at once, as when a time daemon corrects the host's
	// clock, in parts per million. Default 5.
	MaxRateChange float64
	// MaxSlew is how fast it may change besides, as with the temperature of an oscillator, in parts per million per
	// second. Default 3.
	MaxSlew float64
}

const (
	defaultWindow        = 15 * time.Second
	defaultMaxAnchors    = 256
	defaultTick          = 500 * time.Nanosecond
	defaultMaxDrift      = 500
	defaultMaxRateChange = 5
	defaultMaxSlew       = 3

	// roundings is the relative error of one elapsed time: float32 rounds to 2^-24, HIP rounds twice.
	roundings = 1.0 / (1 << 23)
)

func (o Options) withDefaults() Options {
	if o.Window <= 0 {
		o.Window = defaultWindow
	}
	if o.MaxAnchors <= 0 {
		o.MaxAnchors = defaultMaxAnchors
	}
	o.MaxAnchors = max(o.MaxAnchors, 2)
	switch {
	case o.Tick == 0:
		o.Tick = defaultTick
	case o.Tick < 0:
		o.Tick = 0
	}
	if o.MaxDrift <= 0 {
		o.MaxDrift = defaultMaxDrift
	}
	if o.MaxRateChange <= 0 {
		o.MaxRateChange = defaultMaxRateChange
	}
	if o.MaxSlew <= 0 {
		o.MaxSlew = defaultMaxSlew
	}
	return o
}
