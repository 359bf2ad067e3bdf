// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

import (
	"testing"

	"github.com/otelgpu/otelgpu/internal/configtest"
)

func TestTheReadmeMatchesThePage(t *testing.T) {
	configtest.README(t, "exporters", "step_csv", createDefaultConfig)
}
