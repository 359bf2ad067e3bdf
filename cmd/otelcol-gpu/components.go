// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/healthcheckextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/pprofextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/resourceprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/forwardconnector"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/zpagesextension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/exporter/prometheusexporter"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/extension/filestorage"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/receiver/otlpreceiver"
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

const (
	coreVersion   = "v0.159.0"
	ownModule     = "github.com/otelgpu/otelgpu"
	coreModule    = "go.opentelemetry.io/collector/"
	contribModule = "github.com/open-telemetry/opentelemetry-collector-contrib/"
)

// part is one component of the distribution, with its module as the builder manifest names it.
type part[F component.Factory] struct {
	factory F
	module  string
}

func own[F component.Factory](f F) part[F] { return part[F]{f, ownModule + " v" + version} }

func core[F component.Factory](f F, path string) part[F] {
	return part[F]{f, coreModule + path + " " + coreVersion}
}

func contrib[F component.Factory](f F, path string) part[F] {
	return part[F]{f, contribModule + path + " " + coreVersion}
}

// factories returns the components of the distribution. builder.yaml lists the same ones for the
// OpenTelemetry Collector Builder; a test compares the two lists.
func factories() (otelcol.Factories, error) {
	f := otelcol.Factories{Telemetry: otelconftelemetry.NewFactory()}
	var errs [5]error
	f.Extensions, f.ExtensionModules, errs[0] = collect(
		own[extension.Factory](gpusamplesextension.NewFactory()),
		own[extension.Factory](hostcheckextension.NewFactory()),
		core[extension.Factory](zpagesextension.NewFactory(), "extension/zpagesextension"),
		contrib[extension.Factory](healthcheckextension.NewFactory(), "extension/healthcheckextension"),
		contrib[extension.Factory](pprofextension.NewFactory(), "extension/pprofextension"),
		part[extension.Factory]{filestorage.NewFactory(), ownModule + "/cmd/otelcol-gpu v" + version},
	)
	f.Receivers, f.ReceiverModules, errs[1] = collect(
		own[receiver.Factory](gpureceiver.NewFactory()),
		own[receiver.Factory](gpucapturereceiver.NewFactory()),
		own[receiver.Factory](kinetoreceiver.NewFactory()),
		own[receiver.Factory](nsysreceiver.NewFactory()),
		own[receiver.Factory](xplanereceiver.NewFactory()),
		own[receiver.Factory](collectivesreceiver.NewFactory()),
		part[receiver.Factory]{otlpreceiver.NewFactory(), ownModule + "/cmd/otelcol-gpu v" + version},
	)
	f.Processors, f.ProcessorModules, errs[2] = collect(append(ottlProcessors(),
		own[processor.Factory](gpujoinprocessor.NewFactory()),
		own[processor.Factory](gpuderiveprocessor.NewFactory()),
		core[processor.Factory](batchprocessor.NewFactory(), "processor/batchprocessor"),
		core[processor.Factory](memorylimiterprocessor.NewFactory(), "processor/memorylimiterprocessor"),
		contrib[processor.Factory](resourceprocessor.NewFactory(), "processor/resourceprocessor"),
	)...)
	f.Exporters, f.ExporterModules, errs[3] = collect(
		own[exporter.Factory](chrometraceexporter.NewFactory()),
		own[exporter.Factory](gpupageexporter.NewFactory()),
		own[exporter.Factory](gpusamplesexporter.NewFactory()),
		own[exporter.Factory](stepcsvexporter.NewFactory()),
		core[exporter.Factory](debugexporter.NewFactory(), "exporter/debugexporter"),
		core[exporter.Factory](otlpexporter.NewFactory(), "exporter/otlpexporter"),
		core[exporter.Factory](otlphttpexporter.NewFactory(), "exporter/otlphttpexporter"),
		contrib[exporter.Factory](fileexporter.NewFactory(), "exporter/fileexporter"),
		part[exporter.Factory]{prometheusexporter.NewFactory(), ownModule + "/cmd/otelcol-gpu v" + version},
	)
	f.Connectors, f.ConnectorModules, errs[4] = collect(
		own[connector.Factory](gpugoodputconnector.NewFactory()),
		own[connector.Factory](gpumetricsconnector.NewFactory()),
		own[connector.Factory](gpuprofilesconnector.NewFactory()),
		own[connector.Factory](gpurequestsconnector.NewFactory()),
		core[connector.Factory](forwardconnector.NewFactory(), "connector/forwardconnector"),
	)
	return f, errors.Join(errs[:]...)
}

// collect maps components by type, and (for the list of components that the binary prints) types to
// modules.
func collect[F component.Factory](parts ...part[F]) (map[component.Type]F, map[component.Type]string, error) {
	list := make([]F, len(parts))
	modules := make(map[component.Type]string, len(parts))
	for i, p := range parts {
		list[i] = p.factory
		modules[p.factory.Type()] = p.module
	}
	byType, err := otelcol.MakeFactoryMap(list...)
	for typ, f := range byType { // deprecated aliases are in the same module
		if _, ok := modules[typ]; !ok {
			modules[typ] = modules[f.Type()]
		}
	}
	return byType, modules, err
}
