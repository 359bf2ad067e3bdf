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
