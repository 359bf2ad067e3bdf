// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

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
