// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freeport

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAddressesCanBeListenedOnAndAreNotThoseOfConnections(t *testing.T) {
	taken := map[string]bool{}
	for range 50 {
		address, err := Address()
		require.NoError(t, err)
		require.False(t, taken[address], "%s is being listened on", address)
		taken[address] = true
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		n, err := strconv.Atoi(port)
		require.NoError(t, err)
		assert.Less(t, n, 32768)
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		defer l.Close()
	}
}

func TestProcessesThatRunTogetherChooseDifferentPorts(t *testing.T) {
	owner := map[int]int{}
	for process := 4_194_000; process < 4_194_060; process++ {
		for n := range 7 * block {
			p := port(process, n)
			require.GreaterOrEqual(t, p, first)
			require.Less(t, p, last)
			require.NotContains(t, owner, p, "of %d and %d", process, owner[p])
			owner[p] = process
		}
	}
}

func TestAProcessTriesEveryPort(t *testing.T) {
	seen := map[int]bool{}
	for n := range last - first {
		seen[port(1, n)] = true
	}
	assert.Len(t, seen, last-first)
}
