// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
)

type option interface{ apply(*string) }

type set func(*string)

func (f set) apply(s *string) { f(s) }

func TestOptionsAreAppliedInOrderAndNilOnesDoNothing(t *testing.T) {
	add := func(text string) option { return set(func(s *string) { *s += text }) }
	s := "a"
	options.All([]option{add("b"), nil, add("c")}, option.apply)(&s)
	require.Equal(t, "abc", s)
	options.All(nil, option.apply)(&s)
	require.Equal(t, "abc", s)
}
