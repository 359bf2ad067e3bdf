// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"time"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Launched is how the launches of a kernel fill the device. The means are over the time of the
// launches for which a value is known.
type Launched struct {
	Registers   int64  `json:"registers,omitzero"` // of a thread, the most of any launch
	BlocksPerSM Mean   `json:"blocks_per_sm,omitzero"`
	Waves       Mean   `json:"waves,omitzero"`
	Occupancy   Mean   `json:"occupancy,omitzero"` // 0 to 1, estimated from the launches
	LimitedBy   Limits `json:"limited_by,omitzero"`
}

func (l *Launched) launch(c *timeline.Config, length time.Duration) {
	l.Registers = max(l.Registers, c.Registers)
	l.BlocksPerSM.Add(MeanOf(c.BlocksPerSM, length))
	l.Waves.Add(MeanOf(c.Waves, length))
	l.Occupancy.Add(MeanOf(c.Occupancy, length))
	if c.Limit != occupancy.LimitUnknown {
		l.LimitedBy[c.Limit] += max(1, length)
	}
}

// Add adds other launches.
func (l *Launched) Add(o *Launched) {
	l.Registers = max(l.Registers, o.Registers)
	l.BlocksPerSM.Add(o.BlocksPerSM)
	l.Waves.Add(o.Waves)
	l.Occupancy.Add(o.Occupancy)
	for i, n := range o.LimitedBy {
		l.LimitedBy[i] += n
	}
}

// Limits is the time of launches by what keeps their occupancy from being higher. It is written as
// the name of the longest.
type Limits [occupancy.NumLimits]time.Duration

// String returns what limits the occupancy for most of the time.
func (l *Limits) String() string {
	most := occupancy.LimitUnknown
	for i := range occupancy.NumLimits {
		if l[i] > l[most] {
			most = i
		}
	}
	return most.String()
}

// MarshalText returns the name of the longest.
func (l Limits) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the name of one limit.
func (l *Limits) UnmarshalText(b []byte) error {
	*l = Limits{}
	if limit := occupancy.LimitOf(string(b)); limit != occupancy.LimitUnknown {
		l[limit] = 1
	}
	return nil
}

// Mean is the mean of values above 0 over the time for which they are known. The zero Mean is
// unknown.
type Mean struct{ sum, time float64 }

// MeanOf returns the mean of one value; unknown if that is not above 0.
func MeanOf(v float64, length time.Duration) Mean {
	if v <= 0 {
		return Mean{}
	}
	t := float64(max(1, length)) // old files round short kernels to 0
	return Mean{v * t, t}
}

// Add adds the values of another mean.
func (m *Mean) Add(o Mean) { m.sum, m.time = m.sum+o.sum, m.time+o.time }

// Value returns the mean; 0 if it is unknown.
func (m Mean) Value() float64 {
	if m.time == 0 {
		return 0
	}
	return m.sum / m.time
}

// MarshalJSON writes the mean as a number.
func (m Mean) MarshalJSON() ([]byte, error) { return json.Marshal(m.Value()) }

// UnmarshalJSON reads a number as the mean of one value.
func (m *Mean) UnmarshalJSON(b []byte) error {
	var v float64
	err := json.Unmarshal(b, &v)
	*m = MeanOf(v, 1)
	return err
}
