// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freeport

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAddressesAreFreeAndOutsideTheRangesOfConnections(t *testing.T) {
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
			if other, taken := owner[p]; taken || p < first || p >= last {
				require.Fail(t, "port", "%d of %d: %d to %d, %d has it", p, process, first, last, other)
			}
			owner[p] = process
		}
	}
}

func TestABlockBelongsToOneProcess(t *testing.T) {
	mu.Lock()
	begin := (chosen + block - 1) / block * block // of the next block
	chosen = begin
	other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port(os.Getpid(), begin)))
	mu.Unlock()
	if err != nil {
		t.Skip("the block is another process's already: ", err)
	}
	defer other.Close()
	address, err := Address()
	require.NoError(t, err)
	for n := range block {
		require.NotEqual(t, fmt.Sprintf("127.0.0.1:%d", port(os.Getpid(), begin+n)), address)
	}
	again := map[string]bool{address: true}
	for range 3 * block {
		a, err := Address()
		require.NoError(t, err)
		require.False(t, again[a])
		again[a] = true
	}
	for p, l := range guards {
		require.NotContains(t, again, fmt.Sprintf("127.0.0.1:%d", p))
		require.NotNil(t, l)
	}
}

func TestAProcessTriesEveryPort(t *testing.T) {
	seen := map[int]bool{}
	for n := range last - first {
		seen[port(1, n)] = true
	}
	assert.Len(t, seen, last-first)
}
