// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"fmt"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// clockPatience is how long a working source may have no new sample, and by how much its samples
// may be behind.
const clockPatience = 10 * time.Second

// clockState compares the times of a source's samples with this machine's clock.
type clockState struct {
	arrived time.Time // of the last new sample, by this machine's clock; zero: none yet
	kind    string    // the problem; empty if there is none
	err     error     // as first seen, so that a drift is logged once
}

// reset starts over, for a source that was opened.
func (c *clockState) reset(now time.Time) { c.arrived = now }

// take returns the problem with the times of a batch; nil if there is none. Lost devices have no
// samples for another reason, and a source without devices has nothing to sample.
func (c *clockState) take(b *gpudata.Batch, devices int, now time.Time, sampling time.Duration) error {
	patience := max(clockPatience, 5*sampling)
	newest := int64(0)
	for i := range b.Values {
		if b.Values[i].Quantity != gpuquantity.XIDs { // which are counted, not measured
			newest = max(newest, b.Values[i].Time)
		}
	}
	lost := len(b.Health) > 0 && !slices.ContainsFunc(b.Health, func(h gpudata.Health) bool {
		return h != gpudata.HealthFailed && h != gpudata.HealthSilent
	})
	if newest > 0 || devices == 0 || lost || c.arrived.IsZero() {
		c.arrived = now
	}
	off := time.Unix(0, newest).Sub(now)
	switch {
	case newest == 0 && now.Sub(c.arrived) > patience:
		c.set("stopped", func() error {
			return fmt.Errorf("no new sample for more than %s, though the source responds (its clock has stopped or was set "+
				"back, or the driver hangs; check the clock and restart the host engine)", patience)
		})
	case newest == 0: // nothing new to compare
	case off > clockSlack:
		c.set("ahead", func() error {
			return fmt.Errorf("samples are %s ahead of this machine's clock (synchronize the clocks, then restart the host "+
				"engine)", off.Round(time.Second))
		})
	case -off > patience:
		c.set("behind", func() error {
			return fmt.Errorf("samples are %s behind this machine's clock (synchronize the clocks, then restart the host "+
				"engine)", (-off).Round(time.Second))
		})
	default:
		c.set("", func() error { return nil })
	}
	return c.err
}

func (c *clockState) set(kind string, err func() error) {
	if kind != c.kind {
		c.kind, c.err = kind, err()
	}
}

// checkClock adds the notice of a source whose samples are not current. A recording has its own
// times.
func (r *gpuReceiver) checkClock(source string, devices int, b *gpudata.Batch, now time.Time) {
	if source == sourceReplay {
		return
	}
	if err := r.clock.take(b, devices, now, r.cfg.SamplingInterval); err != nil {
		b.Notices = append(b.Notices, gpudata.Notice{Kind: gpudata.NoticeClock, Devices: []string{"all"}, Err: err})
	}
}
