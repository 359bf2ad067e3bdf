// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/test/internal/program"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // unless the command line sets it: tests mostly wait
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		program.RemoveBuilt()
		os.Exit(code)
	}))
}
