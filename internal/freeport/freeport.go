// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package freeport finds addresses for tests that start programs which cannot report where they
// listen.
package freeport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

// Ports below the ranges that systems give to outgoing connections (from 32768 on Linux, 49152
// elsewhere) and to listeners on port 0. Of those, any connection on the machine could take the one
// that was free before the program listens on it.
//
// The tests of several packages run at the same time, and seconds pass between the choice of a port
// and the program that listens on it. So each process chooses ports from its own blocks, by its
// process ID, and never chooses a port twice before all others. If several processes have the same
// block, its first port decides: the process that listens on it owns the block. Random ports were
// rejected: with a dozen chosen ports that are not in use yet, one start in a hundred failed.
const (
	first, last = 20_000, 32_000
	block       = 16
	blocks      = (last - first) / block // 750
	// to the next block of a process; its first seven are more than 70 from its neighbors'
	stride = 97
)

var (
	mu     sync.Mutex
	chosen int                      // ports of this process so far, its guards among them
	guards = map[int]net.Listener{} // by port
)

// Address returns a host:port on the loopback interface that is free now, and that no other process
// chooses.
func Address() (string, error) {
	mu.Lock()
	defer mu.Unlock()
	var failed error
	for range 100 {
		n := chosen
		p := port(os.Getpid(), n)
		chosen++
		if guards[p] != nil {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", p)
		l, err := net.Listen("tcp", address)
		switch {
		case err == nil && n%block == 0:
			guards[p] = l // until the process ends
			continue
		case err == nil:
			return address, l.Close()
		case n%block == 0:
			chosen += block - 1 // the whole block belongs to another process
		}
		failed = err
	}
	return "", fmt.Errorf("no free port was found (of %d to %d): %w", first, last-1, failed)
}

// Pair returns two addresses like Address's, on a port and the next one.
func Pair() (one, next string, err error) {
	number := func(address string) int {
		_, p, _ := net.SplitHostPort(address)
		n, _ := strconv.Atoi(p)
		return n
	}
	if one, err = Address(); err != nil {
		return "", "", err
	}
	for range 4 * block {
		if next, err = Address(); err != nil {
			return "", "", err
		}
		if number(next) == number(one)+1 {
			return one, next, nil
		}
		one = next
	}
	return "", "", errors.New("no two free ports in a row were found")
}

// port returns the nth that a process tries.
func port(process, n int) int { return first + (process+n/block*stride)%blocks*block + n%block }
