// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dl

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpenStatesWhyNothingCouldBeLoaded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the loader's messages are Linux's")
	}
	broken := filepath.Join(t.TempDir(), "broken.so")
	require.NoError(t, os.WriteFile(broken, []byte("not a library"), 0o644))
	_, err := Open("/nonexistent/a.so", "/nonexistent/b.so", broken, "/nonexistent/c.so")
	require.EqualError(t, err, "/nonexistent/a.so: cannot open shared object file: No such file or directory; "+
		broken+": file too short; nor is there /nonexistent/b.so, /nonexistent/c.so")
	_, err = Open()
	require.EqualError(t, err, "no library named")
}

func TestSymbols(t *testing.T) {
	lib, err := Open("libc.so.6")
	if err != nil {
		t.Skip("no glibc: ", err)
	}
	s := lib.Symbols()
	require.NotZero(t, s.Need("getpid"))
	require.NotZero(t, s.Need("no_such_function", "strlen"))
	require.NoError(t, s.Err())
	require.Zero(t, s.Need("no_such_function", "nor_this"))
	require.Zero(t, s.Need("no_such_other"))
	require.EqualError(t, s.Err(), "libc.so.6 lacks no_such_function, no_such_other (library too old)")
	require.EqualValues(t, os.Getpid(), lib.Lookup("getpid").Call())
	require.Equal(t, "", String(0))
}

func TestFrameCarriesArgumentsAndResults(t *testing.T) {
	lib, err := Open("libc.so.6")
	if err != nil {
		t.Skip("no glibc: ", err)
	}
	f := NewFrame()
	defer f.Free()
	f.Args[0] = 0
	now := f.CallPointer(lib.Lookup("time"), 1)
	f.Args[0] = f.Addr(2)
	require.InDelta(t, float64(now), float64(f.CallPointer(lib.Lookup("time"), 1)), 2)
	require.InDelta(t, float64(now), float64(f.Out[2]), 2)
	require.EqualValues(t, 5, lib.Lookup("labs").Call(^uintptr(4)))
}
