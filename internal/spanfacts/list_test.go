// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// TestAListOfDevicesIsReadAsAWhole: a request on 64 devices lists all of them in hw.id.
func TestAListOfDevicesIsReadAsAWhole(t *testing.T) {
	var ids []string
	for i := range 64 {
		ids = append(ids, fmt.Sprintf("MIG-GPU-00000000-0000-0000-0000-%012d/%d/0", i, i%7))
	}
	attrs := pcommon.NewMap()
	attrs.PutStr("hw.id", strings.Join(ids, ","))
	var r Resource
	r.Load(attrs)
	assert.Equal(t, strings.Join(ids, ","), r.Device.ID)
	attrs.PutStr("hw.id", strings.Repeat("x", 1<<20))
	r.Load(attrs)
	assert.Less(t, len(r.Device.ID), 5000)
}
