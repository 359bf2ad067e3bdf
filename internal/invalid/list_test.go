// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"errors"
	"testing"
	"time"

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

func TestPartsAndNumbers(t *testing.T) {
	var l List
	l.Join(nil)
	Positive(&l, "a", 1)
	Positive(&l, "b", time.Nanosecond)
	require.NoError(t, l.Err())
	l.Join(errors.New("`part` is wrong"))
	Positive(&l, "a", 0)
	Positive(&l, "b", -time.Second)
	require.EqualError(t, l.Err(), "`part` is wrong\n`a` must be positive, found 0\n`b` must be positive, found -1s")
}
