// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Four exchanges move 200 elements at 2 per ns at best, and half of the last one is hidden.
func TestExchangesOfTokensWaitBeyondTheFastest(t *testing.T) {
	for _, c := range []struct {
		sent, received int64
		uneven         float64
	}{{200, 200, 0}, {100, 200, 2. / 3}, {200, 100, 2. / 3}} {
		d := NewDevice(&timeline.Splitter{})
		at := int64(0)
		for i, length := range []int64{100, 300, 300, 300} {
			if i == 3 {
				d.Add(&timeline.Activity{Start: at, End: at + 150, Name: 2}, &timeline.Launch{}, 0)
			}
			d.Add(&timeline.Activity{
				Start: at, End: at + length, Name: 1, Class: timeline.Communicating, Collective: "all_to_all",
				Sent: c.sent, Received: c.received,
			}, &timeline.Launch{}, 0)
			at += length
		}
		d.Report(&Context{Name: func(uint32) string { return "" }, Kernel: func(uint32) string { return "" }})
		assert.EqualValues(t, 4, d.Experts.Count)
		assert.InDelta(t, c.uneven, d.Experts.Uneven(), 1e-9)
		assert.Equal(t, time.Duration(850-3.5*100), d.Experts.Waiting())
	}
}
