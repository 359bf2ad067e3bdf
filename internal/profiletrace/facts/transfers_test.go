// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

func TestTransfersUseTheShortestMessagePerGroup(t *testing.T) {
	d := NewDevice(&timeline.Splitter{})
	at := int64(0)
	run := func(length, bytes int64, group uint32, collective string) {
		d.Add(&timeline.Activity{
			Start: at, End: at + length, Class: timeline.Communicating, Name: 1, Collective: collective, Bytes: bytes,
			Group: 4, GroupID: group, GroupName: "tp", ElementType: "Half",
		}, &timeline.Launch{}, 0)
		at += 2 * length
	}
	run(5_000_000, 1<<20, 1, "all_reduce") // waits
	run(1_000_000, 1<<20, 1, "all_reduce")
	run(2_000_000, 1<<20, 2, "all_reduce")
	run(1_000_000, 1<<10, 1, "all_gather")
	run(9_000_000, 0, 1, "all_reduce") // its size is not stated
	run(9_000_000, 1<<20, 1, "")       // it is not known what it is
	list := d.Report(aContext()).Transfers
	require.Len(t, list, 3)
	assert.Equal(t, Transfer{
		Message: Message{
			Collective: "all_reduce", Group: "tp", ID: "n1", Ranks: 4, ElementType: "Half", Bytes: 1 << 20,
		},
		Members: "tp", Count: 2, Time: 6 * time.Millisecond, Shortest: time.Millisecond, Rate: (1 << 20) / 1e-3,
		BusRate: 1.5 * (1 << 20) / 1e-3,
	}, list[0])
	assert.Equal(t, "n2", list[1].ID)
	assert.Equal(t, "all_gather", list[2].Collective)
}

// Beyond the limit messages are not distinguished, and none of their runs and time is lost.
func TestMessagesBeyondTheLimitAreCounted(t *testing.T) {
	d := NewDevice(&timeline.Splitter{})
	const beyond = 5
	at := int64(0)
	for round := range int64(2) {
		for i := range int64(maxClasses + beyond) {
			d.Add(&timeline.Activity{
				Start: at, End: at + 1000 + round, Class: timeline.Communicating, Name: 1, Collective: "all_to_all", Bytes: 1 + i,
				Group: 4, GroupID: 1,
			}, &timeline.Launch{}, 0)
			at += 2000
		}
	}
	list := d.Report(aContext()).Transfers
	require.Len(t, list, maxClasses+1)
	assert.Equal(t, Transfer{
		Message: Message{Collective: OtherMessages}, Count: 2 * beyond, Time: beyond * 2001,
	}, list[0], "the longest, because they are several")
	var count int64
	var sum time.Duration
	for i := range list {
		count, sum = count+list[i].Count, sum+list[i].Time
	}
	assert.EqualValues(t, 2*(maxClasses+beyond), count)
	assert.EqualValues(t, (maxClasses+beyond)*2001, sum)
}

func TestBusBandwidthIsComparedWithAKnownLinkOnly(t *testing.T) {
	const sxm, pcie, l40s, mi300 = "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA L40S", "AMD Instinct MI300X"
	for _, x := range []struct {
		name, model, id string
		ranks, world    int64
		link            string
		rate            float64
	}{
		{"one host", sxm, "0 [0, 1, 2, 3, 4, 5, 6, 7]", 8, 8, "NVLink", 450e9},
		{"a group of the second host", sxm, "tp [8, 9]", 2, 16, "NVLink", 450e9},
		{"one rank of each host", sxm, "dp [0, 8]", 2, 16, "", 0},
		{"more than a host", sxm, "0 [0, 1, 2, ..., 15]", 16, 16, "", 0},
		{"ranks not listed in a job of one host", sxm, "tp", 2, 8, "NVLink", 450e9},
		{"ranks not listed in a larger job", sxm, "tp", 2, 16, "", 0},
		{"ranks not listed in any job", sxm, "tp", 2, 0, "", 0},
		{"ranks that are no numbers", sxm, "tp [a, b]", 2, 16, "", 0},
		{"bridge", pcie, "tp [2, 3]", 2, 8, "NVLink", 300e9},
		{"beyond the bridge", pcie, "0 [0, 1, 2, 3]", 4, 4, "", 0},
		{"no NVLink", l40s, "0 [0, 1]", 2, 64, "PCIe 4.0 x16", 16e9 * 16 * 128 / 130 / 8},
		{"AMD", mi300, "0 [0, 1]", 2, 8, "Infinity Fabric", 448e9},
		{"an unknown device", "H9000", "0 [0, 1]", 2, 2, "", 0},
	} {
		r := Transfer{Message: Message{Collective: "all_reduce", ID: x.id, Ranks: x.ranks, Bytes: 1e6}}
		r.Compare(time.Millisecond, PeakOf(x.model), x.world)
		assert.Equal(t, x.link, r.Link, x.name)
		assert.InDelta(t, x.rate, r.LinkRate, 1, x.name)
		if x.rate > 0 {
			assert.InEpsilon(t, r.BusRate/x.rate, r.LinkShare, 1e-12, x.name)
		} else {
			assert.Zero(t, r.LinkShare, x.name)
		}
	}
}

func TestOddTransfersHaveNoRate(t *testing.T) {
	r := Transfer{Message: Message{Collective: "all_reduce", Ranks: 2, Bytes: 1e6}}
	r.Compare(0, PeakOf("NVIDIA L40S"), 2)
	assert.Zero(t, r.Rate, "it took no time")
	r.Ranks = 1
	r.Compare(time.Millisecond, PeakOf("NVIDIA L40S"), 2)
	assert.Zero(t, r.BusRate, "no other rank takes part")
	assert.Zero(t, r.LinkShare)
	assert.InDelta(t, 1e9, r.Rate, 1)
}

func TestMembersNameTheGroupForPeople(t *testing.T) {
	for _, x := range []struct{ group, id, want string }{
		{"default_pg", "0 [0, 1]", "default_pg [0, 1]"},
		{"undefined", "7 [2, 3]", "7 [2, 3]"},
		{"", "7", "7"},
		{"tp", "", "tp"},
		{"", "", ""},
	} {
		assert.Equal(t, x.want, NewTransfer(Message{Group: x.group, ID: x.id}).Members)
	}
}
