// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configtest_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/connector/gpugoodputconnector"
	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/connector/gpuprofilesconnector"
	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector"
	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter"
	"github.com/otelgpu/otelgpu/exporter/gpupageexporter"
	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter"
	"github.com/otelgpu/otelgpu/exporter/stepcsvexporter"
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/extension/hostcheckextension"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
	"github.com/otelgpu/otelgpu/receiver/collectivesreceiver"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	"github.com/otelgpu/otelgpu/receiver/xplanereceiver"
)

func components() []component.Factory {
	return []component.Factory{
		gpugoodputconnector.NewFactory(),
		gpumetricsconnector.NewFactory(),
		gpuprofilesconnector.NewFactory(),
		gpurequestsconnector.NewFactory(),
		chrometraceexporter.NewFactory(),
		gpupageexporter.NewFactory(),
		gpusamplesexporter.NewFactory(),
		stepcsvexporter.NewFactory(),
		gpusamplesextension.NewFactory(),
		hostcheckextension.NewFactory(),
		gpuderiveprocessor.NewFactory(),
		gpujoinprocessor.NewFactory(),
		collectivesreceiver.NewFactory(),
		gpucapturereceiver.NewFactory(),
		gpureceiver.NewFactory(),
		kinetoreceiver.NewFactory(),
		nsysreceiver.NewFactory(),
		xplanereceiver.NewFactory(),
	}
}

func TestDocumentsOfComponentsMatchTheirConfigurations(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	checked := 0
	for _, f := range components() {
		of := reflect.TypeOf(f.CreateDefaultConfig()).Elem().PkgPath()
		_, dir, _ := strings.Cut(of, "otelgpu/otelgpu/")
		kind, _, _ := strings.Cut(dir, "/")
		checked++
		t.Run(dir, func(t *testing.T) {
			t.Chdir(filepath.Join(root, dir))
			checkSettings(t, f.CreateDefaultConfig)
			if f.Type().String() == "gpu_page" { // has no metrics, and a test of its README
				checkSchema(t, f.CreateDefaultConfig)
				return
			}
			checkREADME(t, kind+"s", f.Type().String(), f.CreateDefaultConfig)
		})
	}
	all, err := filepath.Glob(filepath.Join(root, "*", "*", "config.schema.yaml"))
	require.NoError(t, err)
	assert.Len(t, all, checked, "each component is in the list")
}
