// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sharedcomponent

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector/connectortest"
)

// The instance ID does not change with a restart, after which the Collector has a different
// service.instance.id.
func TestInstanceIDHasTheHostAndTheConnectorsName(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	gpu := component.MustNewType("gpu_metrics")
	for name, want := range map[string]string{"": host, "jobs": host + "/jobs"} {
		for _, id := range []string{"collector-1", "collector-2"} {
			set := connectortest.NewNopSettings(gpu)
			set.ID = component.NewIDWithName(gpu, name)
			set.Resource.Attributes().PutStr("service.instance.id", id)
			assert.Equal(t, want, InstanceID("", set))
			assert.Equal(t, "mine", InstanceID("mine", set))
		}
	}
}
