// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dl_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

func libc(t *testing.T) *dl.Library {
	t.Helper()
	lib, err := dl.Open("libc.so.6")
	if err != nil {
		t.Skip("no glibc: ", err)
	}
	return lib
}

// deepen uses n KiB of stack.
//
//go:noinline
func deepen(n int) byte {
	var room [1024]byte
	if n > 0 {
		room[n%len(room)] = deepen(n - 1)
	}
	return room[n%len(room)]
}

// While a C function calls back into Go, the stack that it returns to may grow and move.
func TestResultSurvivesACallbackThatGrowsTheStack(t *testing.T) {
	// void *tfind(const void *key, void *const *root, int (*compare)(const void *, const void *))
	find := libc(t).Lookup("tfind")
	require.NotZero(t, find)
	type node struct{ key *byte } // glibc's nodes begin with the key
	n := &node{key: new(byte)}
	root := &n
	compare := purego.NewCallback(func(a, b uintptr) int32 {
		deepen(64)
		return 0 // found
	})
	for range 300 {
		done := make(chan uintptr)
		go func() {
			f := dl.NewFrame()
			defer f.Free()
			f.Pointer(0, dl.Ref(n.key))
			f.Pointer(1, dl.Ref(root))
			f.Args[2] = compare
			done <- f.CallPointer(find, 3)
		}()
		require.Equal(t, dl.Address(n), <-done)
	}
}

func TestMemoryLentToCIsWholeAtAnyStackDepth(t *testing.T) {
	lib := libc(t)
	write, length, fill := lib.Lookup("sprintf"), lib.Lookup("strlen"), lib.Lookup("memset")
	ctest.AtEachDepth(func(int) {
		f := dl.NewFrame()
		defer f.Free()
		buf := f.Buffer(0, 32)
		f.Text(1, "depth")
		f.Call(write, 2)
		require.Equal(t, "depth", dl.CString(buf))
	}, func(int) {
		f := dl.NewFrame()
		defer f.Free()
		f.Text(0, "twelve bytes")
		require.EqualValues(t, 12, f.Call(length, 1))
	}, func(int) {
		var own [8]byte // would be on the stack without Bytes
		f := dl.NewFrame()
		defer f.Free()
		f.Bytes(0, own[:])
		f.Args[1], f.Args[2] = 7, 8
		f.CallPointer(fill, 3)
		require.True(t, own == [8]byte{7, 7, 7, 7, 7, 7, 7, 7})
	})
}

// The loader stores the reason of a failure per thread.
func TestReasonOfAFailureIsNeverLost(t *testing.T) {
	lib := libc(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				path := fmt.Sprintf("/nonexistent/%d-%d.so", g, i)
				_, err := dl.Open(path)
				require.EqualError(t, err, path+": cannot open shared object file: No such file or directory")
				require.Zero(t, lib.Lookup("no_such_function"))
			}
		})
	}
	wg.Wait()
}
