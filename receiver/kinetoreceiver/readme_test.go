// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"testing"

	"github.com/otelgpu/otelgpu/internal/configtest"
)

func TestTheReadmeMatchesThePage(t *testing.T) {
	configtest.README(t, "receivers", "kineto", createDefaultConfig)
}
