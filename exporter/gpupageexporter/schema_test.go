// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpupageexporter

import (
	"testing"

	"github.com/otelgpu/otelgpu/internal/configtest"
)

func TestConfigSchemaIsCurrent(t *testing.T) { configtest.Schema(t, createDefaultConfig) }
