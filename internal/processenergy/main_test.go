// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processenergy

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
