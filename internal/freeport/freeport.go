// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package freeport finds addresses for tests that start programs which cannot say where they listen.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports below those that systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere) and to listeners on port 0.
// Of those, any connection on the machine could take the one that was free before the program listens on it.
const first, last = 20_000, 32_000

// Address is a host:port on the loopback interface that nobody listens on now.
func Address() (string, error) {
	var failed error
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first))
		l, err := net.Listen("tcp", address)
		if err == nil {
			return address, l.Close()
		}
		failed = err
	}
	return "", fmt.Errorf("no free port was found (100 of %d to %d were tried): %w", first, last-1, failed)
}
