// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryProblemIsReported(t *testing.T) {
	var l List
	require.NoError(t, l.Err())
	l.If(1 > 2, "`a` is wrong")
	require.NoError(t, l.Err())
	l.If(2 > 1, "`b` must be below %d, found %d", 1, 2)
	l.Add("`c` must be set")
	require.EqualError(t, l.Err(), "`b` must be below 1, found 2\n`c` must be set")
}
