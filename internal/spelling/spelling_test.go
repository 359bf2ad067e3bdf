// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spelling

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearestIsWithinAThirdOfTheLetters(t *testing.T) {
	known := []string{"settle", "samples", "max_pending", "on"}
	for name, want := range map[string]string{
		"setle": "settle", "sample": "samples", "max_pendng": "max_pending", "maxpending": "max_pending", "settle": "settle",
		"stetle": "settle", "mxa_pendign": "max_pending", // swapped letters are one change each
		"sttl":  "",                      // 2 of 4 letters
		"settt": "",                      // 2 of 5 letters
		"o":     "", "queue": "", "": "", // nothing is near
	} {
		require.Equal(t, want, Nearest(name, known), name)
	}
	require.Equal(t, "ab1", Nearest("abc", []string{"zzz", "ab1", "ab2"}), "the first of several")
}
