// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnionIsBoundedAndNeverTooLong(t *testing.T) {
	var u union
	const n = 10 * maxOpen
	for i := range int64(n) {
		u.add(i*10, i*10+5)
		require.LessOrEqual(t, len(u.open.List), maxOpen)
	}
	require.EqualValues(t, n*5, u.length())
	u.add(0, 7) // before the closed part
	require.EqualValues(t, n*5, u.length())
	u.add(0, n*20)
	require.LessOrEqual(t, u.length(), int64(n*20))
}
