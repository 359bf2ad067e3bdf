// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package shared

import (
	"os"

	"go.opentelemetry.io/collector/connector"

	"github.com/otelgpu/otelgpu/semconv"
)

// InstanceID is collector.instance.id of a connector's points, which tells its series from those of another: as
// configured, else the name of the host, else the Collector's service.instance.id, with the connector's name. It does
// not change when the Collector is started again, as its service.instance.id does unless it is configured: each start
// would double the series of a store.
func InstanceID(configured string, set connector.Settings) string {
	if configured != "" {
		return configured
	}
	instance, err := os.Hostname()
	if err != nil || instance == "" {
		if v, ok := set.Resource.Attributes().Get(string(semconv.ServiceInstanceIDKey)); ok {
			instance = v.Str()
		}
	}
	if name := set.ID.Name(); name != "" {
		instance += "/" + name
	}
	return instance
}
