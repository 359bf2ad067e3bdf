// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

func TestNotificationsOfOneFaultAreOneEvent(t *testing.T) {
	const second = int64(time.Second)
	plain := func(read, xid int64) Incident {
		return Incident{Device: "GPU-1", Time: read, Read: read, XID: xid, Plain: true}
	}
	operational := func(read, xid int64, group uint64, primary bool) Incident {
		return Incident{
			Device: "GPU-1", Time: read, Read: read, XID: xid, Group: group, Primary: primary,
			Fault: devicesamples.Fault{Code: 7},
		}
	}
	other := plain(2, 79)
	other.Device = "GPU-2"
	for name, c := range map[string]struct {
		notifications []Incident
		want          []int64 // XID of each event; 0: none
	}{
		"an XID and its operational event": {[]Incident{plain(1, 79), operational(2, 79, 0, false)}, []int64{79}},
		"the reverse order":                {[]Incident{operational(1, 79, 0, false), plain(2, 79)}, []int64{79}},
		"the same XID twice":               {[]Incident{plain(1, 79), plain(2, 79)}, []int64{79, 79}},
		"another XID":                      {[]Incident{plain(1, 79), operational(2, 13, 0, false)}, []int64{79, 13}},
		"another device":                   {[]Incident{operational(1, 79, 0, false), other}, []int64{79, 79}},
		"a group":                          {[]Incident{operational(1, 0, 5, false), operational(2, 0, 5, true)}, []int64{0}},
		"two groups":                       {[]Incident{operational(1, 0, 5, false), operational(2, 0, 6, false)}, []int64{0, 0}},
		"too late for the notification before it":  {[]Incident{plain(1, 79), operational(2+second, 79, 0, false)}, []int64{79, 79}},
		"an operational event without a plain XID": {[]Incident{operational(1, 79, 0, false)}, []int64{79}},
	} {
		p := Pairs{Operational: true}
		for _, x := range c.notifications {
			p.Add(x)
		}
		assert.Empty(t, p.Ready(second), "%s: others may follow", name)
		var got []int64
		for _, x := range p.Ready(3 * second) {
			got = append(got, x.XID)
			e := x.Event()
			assert.EqualValues(t, 1, e.Count, name)
			if x.XID == 0 {
				assert.Equal(t, devicesamples.EventFault, e.Kind, name)
			} else {
				assert.Equal(t, devicesamples.EventXID, e.Kind, name)
			}
		}
		assert.Equal(t, c.want, got, name)
		assert.Empty(t, p.Ready(10*second), "%s: each is sent once", name)
		assert.Empty(t, p.waiting, name)
	}
}
