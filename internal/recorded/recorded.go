// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package recorded finds files that real profilers and devices wrote. Tests read them; the
// repository does not contain them.
package recorded

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of a file or folder of the recorded data. The data are in the folder that
// OTELGPU_TESTDATA names, otherwise in shared/data beside the repository, and contain a
// MANIFEST.md. Path skips the test if there is neither folder, or if -short leaves the file out; it
// does not check that the path exists.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	below := func(dir string) string {
		path := filepath.Join(dir, filepath.Join(elem...))
		if LeftOut(path) {
			t.Skip("large recordings are read without -short")
		}
		return path
	}
	if dir := os.Getenv("OTELGPU_TESTDATA"); dir != "" {
		return below(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		data := filepath.Join(dir, "shared", "data")
		if _, err := os.Stat(filepath.Join(data, "MANIFEST.md")); err == nil {
			return below(data)
		}
	}
	t.Skip("no recorded data: set OTELGPU_TESTDATA to the folder that contains their MANIFEST.md")
	return ""
}

// LeftOut reports whether -short leaves out a recording because it is large: most of the time under
// the race detector would be spent on a few of them.
func LeftOut(path string) bool {
	info, err := os.Stat(path)
	return testing.Short() && err == nil && !info.IsDir() && info.Size() > 400<<10
}

// Ranks returns the folder of a recorded job of eight ranks and, for each rank, what another
// program computed for its matched collectives: at how many of them the rank arrived last, and for
// how many ms the others waited for it.
func Ranks(t testing.TB) (dir string, lastAt map[string]int, heldUp map[string]float64) {
	t.Helper()
	dir = Path(t, "kineto", "param", "dlrm_8ranks")
	var truth struct {
		LastAt map[string]int     `json:"last_at"`
		HeldUp map[string]float64 `json:"made_others_wait_ms"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	if err == nil {
		err = json.Unmarshal(text, &truth)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, truth.LastAt, truth.HeldUp
}
