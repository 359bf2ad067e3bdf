// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/test/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(program.RemoveBuilt)) }
