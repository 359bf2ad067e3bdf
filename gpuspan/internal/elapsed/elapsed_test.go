// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package elapsed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheFirstMeasurementIsKept(t *testing.T) {
	var at *Value
	e := Ask(&at)
	require.Same(t, e, Ask(&at), "all who ask wait for the same")
	_, ok := e.Get()
	require.False(t, ok)
	select {
	case <-e.Done():
		t.Fatal("nothing is known yet")
	default:
	}

	e.Set(3*time.Millisecond, true)
	e.Set(0, false)
	<-e.Done()
	d, ok := e.Get()
	require.True(t, ok)
	require.Equal(t, 3*time.Millisecond, d)
}

func TestAnUnmeasuredTimeHasPassed(t *testing.T) {
	var at *Value
	e := Ask(&at)
	e.Set(0, false)
	<-e.Done()
	_, ok := e.Get()
	require.False(t, ok)
}

func TestNilKnowsNothingAndDoesNotBlock(t *testing.T) {
	var e *Value
	e.Set(time.Second, true)
	<-e.Done()
	_, ok := e.Get()
	require.False(t, ok)
}
