// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cputime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWorkUsesTheProcessorAndSleepDoesNot(t *testing.T) {
	from := Used()
	for Used() == from { // work
	}
	worked := Used()
	assert.Greater(t, worked, from)
	time.Sleep(200 * time.Millisecond)
	assert.Less(t, Used()-worked, 150*time.Millisecond)
}
