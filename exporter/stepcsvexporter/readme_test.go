// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

import (
	"reflect"
	"testing"

	"github.com/otelgpu/otelgpu/internal/readmetest"
)

// The README's configuration loads, and the README names every key and every metric of the component.
func TestReadmeIsTrue(t *testing.T) {
	readmetest.Check(t, "exporters", "step_csv", NewDefaultConfig(), reflect.TypeFor[Config](), reflect.TypeFor[Rotation]())
}
