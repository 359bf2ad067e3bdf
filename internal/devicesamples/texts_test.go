// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
)

// Series of long labels are distinct, but their labels are not kept.
func TestLongLabelsOfAServerDistinguishItsSeries(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	long := strings.Repeat("x", 1<<20)
	for i := range 3 {
		st.WriteLoad(LoadSeries{"llm", fmt.Sprint("http://server/metrics{a=", long, i)}, 1e9, 2)
	}
	assert.Equal(t, 6.0, st.LoadLevels("llm", 1e9, 1e9, nil)[0].Running, "of three engines")
	assert.True(t, st.LoadKnown("llm", 1e9, 1e9))
	for source := range st.loads.series["llm"] {
		assert.Len(t, source, len("http://server/metrics{")+64)
		assert.Equal(t, "http://server/metrics", LoadSeries{Source: source}.server())
	}
}

func TestTextsOfADeviceAreBoundedAndValid(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	id := "GPU-" + strings.Repeat("x", 1000)
	w, err := st.Register(component.MustNewID("gpu"), Device{ID: id, Model: "H\xff100", Ordinal: -1})
	require.NoError(t, err)
	defer w.Close()
	v := st.Acquire()
	defer v.Release()
	d, ok := v.Lookup(id[:256] + "…")
	require.True(t, ok, "as the ID of a span is truncated")
	assert.Equal(t, "H\uFFFD100", d.Device().Model)
}
