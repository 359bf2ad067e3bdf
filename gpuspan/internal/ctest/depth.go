// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ctest

// Depths is how many stack depths AtEachDepth tries. At some 32 bytes for each they cover the
// points at which a stack of 2 KiB to 64 KiB grows, for any frames of the code under test.
const Depths = 3000

// AtEachDepth runs each of calls at many depths of a separate stack, so that in some of them the
// stack grows, and therefore moves, between any two steps of it. Memory on the stack whose address
// C has been given by then is lost; with GODEBUG=efence=1 touching it is a fault.
//
// What is tested must be the first thing that a call does, and be inspected afterwards and without
// making its memory escape: whatever runs before it may grow the stack beforehand. Calls must not
// end their goroutine (FailNow).
func AtEachDepth(calls ...func(depth int)) {
	for _, f := range calls {
		for n := range Depths {
			done := make(chan struct{})
			go func() {
				defer close(done)
				descend(n, f, n)
			}()
			<-done
		}
	}
}

//go:noinline
func descend(n int, f func(int), depth int) int {
	if n == 0 {
		f(depth)
		return 0
	}
	return descend(n-1, f, depth) + 1
}
