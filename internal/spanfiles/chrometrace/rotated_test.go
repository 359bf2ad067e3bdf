// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOnlyOurOldestFilesAreDeleted(t *testing.T) {
	stem := filepath.Join(t.TempDir(), "steps")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	touch := func(name string, age time.Duration) {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
		require.NoError(t, os.Chtimes(name, at, at.Add(-age)))
	}
	for age := range 4 {
		touch(timedName(stem, ".csv", at.Add(-time.Duration(age)*time.Second)), time.Duration(age)*time.Second)
	}
	for _, other := range []string{stem + ".csv", stem + "-notes.csv", stem + "-20260102T030401.006Z.json"} {
		touch(other, time.Hour)
	}
	names := func() (list []string) {
		entries, err := os.ReadDir(filepath.Dir(stem))
		require.NoError(t, err)
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	all := names()
	require.NoError(t, prune(stem, ".csv", 0))
	require.Equal(t, all, names(), "0 keeps all")
	require.NoError(t, prune(stem, ".csv", 2))
	require.Equal(t, slices.DeleteFunc(all, func(name string) bool {
		return name == "steps-20260102T030403.006Z.csv" || name == "steps-20260102T030402.006Z.csv"
	}), names(), "the oldest two go, and nothing that only looks alike")
}

func TestAFolderThatCannotBeReadIsNamed(t *testing.T) {
	err := prune(filepath.Join(t.TempDir(), "gone", "steps"), ".csv", 1)
	require.ErrorContains(t, err, filepath.Join("gone", "steps.csv"))
}
