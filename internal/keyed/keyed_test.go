// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package keyed_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/keyed"
)

func TestWhatIsMadeIsFoundAgain(t *testing.T) {
	m := map[string]*int{}
	*keyed.Of(m, "a") += 2
	*keyed.Of(m, "a") += 3
	*keyed.Of(m, "b")++
	assert.Equal(t, 5, *m["a"])
	assert.Equal(t, 1, *m["b"])
}

func TestNewKeysCountForTheRestOnceThereAreTooMany(t *testing.T) {
	m := map[string]*int{}
	for _, key := range []string{"a", "b", "c", "d", "a"} {
		*keyed.Bounded(m, key, "", 2)++
	}
	assert.Len(t, m, 3)
	assert.Equal(t, 2, *m["a"], "known ones stay known")
	assert.Equal(t, 1, *m["b"])
	assert.Equal(t, 2, *m[""])
}
