// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

func TestTransfersHaveBandwidthWhereItIsKnown(t *testing.T) {
	var none strings.Builder
	require.NoError(t, summarytable.RenderTransfers(&none, nil, 0, "nothing"))
	require.Empty(t, none.String())

	list := []facts.Transfer{
		{
			Message: facts.Message{
				Collective: "all_reduce", Group: "undefined", ID: "3 [0, 1]", Ranks: 2, ElementType: "Half", Bytes: 2_000_000,
			},
			Members: "3 [0, 1]", Count: 2, Time: 3 * time.Millisecond, Shortest: time.Millisecond, Rate: 2e9, BusRate: 1.5e9,
			Link: "NVLink", LinkRate: 450e9, LinkShare: 1.5 / 450,
		},
		{
			Message: facts.Message{Collective: "odd", Group: "tp", Bytes: 8}, Members: "tp", Count: 1, Time: 5 * time.Millisecond,
		},
	}
	list = append(list, facts.Transfer{
		Message: facts.Message{Collective: facts.OtherMessages}, Count: 9, Time: 2 * time.Millisecond,
	})
	for i := range 12 {
		list = append(list, facts.Transfer{
			Message: facts.Message{Collective: fmt.Sprint("c", i), Bytes: 1}, Count: 1, Time: time.Microsecond, Rate: 1,
		})
	}
	var b strings.Builder
	require.NoError(t, summarytable.RenderTransfers(&b, list, 3, "the shortest run"))
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	require.Equal(t, "COLLECTIVE SIZE TYPE GROUP RANKS COUNT TIME SHORTEST ALGORITHM GB/s BUS GB/s % LINK LINK", lines[0])
	require.Equal(t, "odd 8 B tp - 1 5.000 ms 0.00 µs - - -", lines[1])
	require.Equal(t, "all_reduce 2 MB Half 3 [0, 1] 2 2 3.000 ms 1.000 ms 2.00 1.50 0.3 NVLink", lines[2])
	require.Equal(t, "others - - 9 2.000 ms - - - -", lines[3])
	require.Len(t, lines, 15)
	require.Contains(t, lines[4], "<0.01")
	require.Equal(t, "(6 more messages)", lines[13])
	require.Equal(t, "Bandwidth is of the shortest run. % LINK assumes that consecutive ranks share a host.", lines[14])
	require.Equal(t, "odd", list[1].Collective, "the list keeps its order")
}
