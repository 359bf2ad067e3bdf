// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sharedcomponent

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type instance struct {
	taken  bool
	forget func()
}

func TestComponentsOfOneConfigurationShareAnInstance(t *testing.T) {
	var s Instances[*int, *instance]
	get := func(cfg *int) *instance {
		i, err := s.Get(cfg, func(i *instance) bool { return !i.taken }, func(forget func()) (*instance, error) {
			return &instance{forget: forget}, nil
		})
		require.NoError(t, err)
		return i
	}
	a, b := new(int), new(int)
	first := get(a)
	assert.Same(t, first, get(a))
	assert.NotSame(t, first, get(b))

	first.taken = true
	second := get(a)
	assert.NotSame(t, first, second, "the instance does not fit")
	first.forget()
	assert.Same(t, second, get(a), "a replaced instance does not remove its successor")
	second.forget()
	assert.NotSame(t, second, get(a))
	assert.Len(t, s.all, 2)
}

func TestGetDoesNotKeepAnInstanceThatFails(t *testing.T) {
	var s Instances[*int, *instance]
	broken := errors.New("broken")
	_, err := s.Get(new(int), nil, func(func()) (*instance, error) { return &instance{}, broken })
	require.ErrorIs(t, err, broken)
	assert.Empty(t, s.all)
}
