// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

func TestLargeResourcesTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var whole, part Targets
	part.Kept = []string{"service.name"}
	for _, targets := range []*Targets{&whole, &part} {
		seen := map[string]bool{}
		for i := range 3 {
			attrs := pcommon.NewMap()
			for j := range 5000 {
				attrs.PutStr(fmt.Sprint("k", j), "0123456789")
			}
			long := strings.Repeat("é", 1_000_000)
			attrs.PutStr("command", long)
			attrs.PutEmptySlice("list").AppendEmpty().SetStr(long)
			attrs.PutStr("service.name", fmt.Sprint(i, " ", long))
			for range 2 {
				require.LessOrEqual(t, len(targets.Whole(attrs)), 1024)
				require.LessOrEqual(t, len(targets.Key(attrs)), 1024)
			}
			seen[string(targets.Key(attrs))] = true
			kept, _ := targets.Attributes(attrs)
			size := 0
			for k, v := range kept.All() {
				size += len(k) + len(v.AsString())
			}
			assert.Less(t, size, 20_000)
			name, ok := kept.Get("service.name")
			require.True(t, ok)
			assert.Equal(t, fmt.Sprint(i)+" "+strings.Repeat("é", 511)+"…", name.Str())
			if targets == &whole {
				assert.Greater(t, kept.Len(), 1000, "in total 16 KiB")
			}
		}
		assert.Len(t, seen, 3, "they are different services")
	}

	attrs := pcommon.NewMap()
	attrs.PutStr("command", strings.Repeat("x", 1024))
	attrs.PutEmptySlice("list").AppendEmpty().SetInt(7)
	kept, _ := whole.Attributes(attrs)
	assert.Equal(t, attrs.AsRaw(), kept.AsRaw())
}

func TestResourcesOfDifferentTargetsHaveSeparateMetrics(t *testing.T) {
	type attrs map[string]any
	const own = "made of the attributes"
	for name, tt := range map[string]struct {
		a, b     attrs
		kept     []string
		same     bool
		instance string // in metrics of a, in addition to its attributes
	}{
		"two processes":           {attrs{"service.name": "s", "process.pid": 1}, attrs{"service.name": "s", "process.pid": 2}, nil, false, own},
		"in another order":        {attrs{"service.name": "s", "host.name": "h"}, attrs{"host.name": "h", "service.name": "s"}, nil, true, own},
		"nothing but the service": {attrs{"service.name": "s"}, attrs{"service.name": "t"}, nil, false, ""},
		"two versions": {
			attrs{"service.name": "s", "service.version": "1"}, attrs{"service.name": "s", "service.version": "2"}, nil, false, own,
		},
		"namespaces of no service": {attrs{"service.namespace": "n"}, attrs{"service.namespace": "m"}, nil, false, own},
		"an empty instance, and none": {
			attrs{"service.name": "s", "service.instance.id": ""}, attrs{"service.name": "s"}, nil, false, own,
		},
		"a container that was started again": {
			attrs{"service.name": "s", "service.instance.id": "pod-0", "container.id": "a"},
			attrs{"service.name": "s", "service.instance.id": "pod-0", "container.id": "b"},
			nil, true, "",
		},
		"instances of two services of one number": {
			attrs{"service.name": "s", "service.instance.id": "0"}, attrs{"service.name": "t", "service.instance.id": "0"}, nil, false, "",
		},
		"an instance without a name": {
			attrs{"service.name": "s", "service.instance.id": "", "process.pid": 1},
			attrs{"service.name": "s", "service.instance.id": "", "process.pid": 2},
			nil, false, own,
		},
		"instances that metrics leave out": {
			attrs{"service.name": "s", "service.instance.id": "1", "host.name": "h"},
			attrs{"service.name": "s", "service.instance.id": "2", "host.name": "h"},
			[]string{"service.name", "host.name"},
			true, own,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := Targets{Kept: tt.kept}
			ma, mb := pcommon.NewMap(), pcommon.NewMap()
			require.NoError(t, ma.FromRaw(tt.a))
			require.NoError(t, mb.FromRaw(tt.b))
			b := string(x.Key(mb))
			assert.Equal(t, tt.same, b == string(x.Key(ma)))
			kept, instance := x.Attributes(ma)
			if tt.instance == own {
				assert.Len(t, instance, 36)
			} else {
				assert.Empty(t, instance)
			}
			for k, v := range tt.a {
				got, ok := kept.Get(k)
				if assert.Equal(t, len(tt.kept) == 0 || k != "service.instance.id", ok, k); ok {
					assert.EqualValues(t, v, got.AsRaw())
				}
			}
		})
	}
}
