// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// row is one line of the table: a setting and the names by which it is set from outside the code.
type row struct{ yaml, env, flag, option, values, value, help string }

// WriteTable writes all settings as a Markdown table, with the values of s and the names in YAML,
// the environment, flags and code, and the environment variables of OpenTelemetry that the library
// or the SDK reads. Options in code override flags, flags override YAML, YAML overrides the
// environment, and the environment overrides defaults. It returns the error of w.
func (s Settings) WriteTable(w io.Writer) error {
	rows := []row{{"YAML", "environment", "flag", "option", "values", "value", "effect"}, {
		"---", "---", "---", "---", "---", "---", "---",
	}}
	for _, k := range s.keys() {
		rows = append(rows, row{
			"`" + Node(k.Name) + "." + k.Name + "`", "`" + k.Env() + "`", "`-" + k.Flag() + "`", options[k.Name],
			strings.ReplaceAll(k.Kind, "|", ", "), "`" + k.get() + "`", k.Help,
		})
	}
	rows = append(rows, elsewhere...)
	for _, r := range rows {
		cells := []string{r.yaml, r.env, r.flag, r.option, r.values, r.value, r.help}
		for i, c := range cells {
			cells[i] = cmp.Or(c, "–")
		}
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")); err != nil {
			return err
		}
	}
	return nil
}

// Node returns the node of a configuration file in which package gpuspanyaml reads the setting of
// that name.
func Node(name string) string {
	if name == "report" || name == "print_report" || strings.HasPrefix(name, "schedule.") {
		return "profiling"
	}
	return "timing"
}

// options names the option that sets a setting in code; gpuspan.WithSettings sets all of them. The
// most specific one wins.
var options = map[string]string{
	"enabled":             "`SetEnabled`",
	"verbosity":           "`SetVerbosity`; `AtVerbosity` of an operation",
	"sync":                "`Sync` of a stream or operation",
	"capture_check":       "`NeverCaptured` of a stream",
	"report":              "`WithReport`",
	"print_report":        "`PrintReport` of an operation",
	"schedule.skip_first": "`train.Schedule`",
	"schedule.wait":       "`train.Schedule`",
	"schedule.warmup":     "`train.Schedule`",
	"schedule.active":     "`train.Schedule`",
	"schedule.repeat":     "`train.Schedule`",
	"schedule.every":      "`train.Schedule`",
}

// elsewhere lists what is set outside of Settings.
var elsewhere = []row{
	{
		yaml: "`nvtx.enabled`", option: "`WithAnnotator`", values: "bool",
		help: "NVTX ranges, by `gpuspanyaml.Setup` or package `nvtx`",
	},
	{
		yaml: "`nvtx.domain`", option: "`nvtx.WithDomain`", values: "string",
		help: "domain of the ranges; requires nvtx.enabled",
	},
	{
		yaml: "`profiling.trace_dir`", option: "`chrometrace.NewExporter`", values: "folder",
		help: "Chrome traces, by `gpuspanyaml.Setup` or package `chrometrace`",
	},
	{
		yaml: "`profiling.step_csv`", option: "`stepcsv.NewExporter`", values: "file",
		help: "a row for each step, by `gpuspanyaml.Setup` or package `stepcsv`",
	},
	{env: "`GPUSPAN_CUDA_LIBRARY`", option: "`cuda.WithLibrary`", values: "file", help: "path of the CUDA driver library"},
	{env: "`GPUSPAN_HIP_LIBRARY`", option: "`hip.WithLibrary`", values: "file", help: "path of the HIP runtime library"},
	{
		env: "`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`", option: "`otlp.Endpoint`", values: "URL",
		value: "`http://localhost:4318`", help: "endpoint of `gpuspan/otlp`",
	},
	{
		env: "`OTEL_EXPORTER_OTLP_HEADERS`", option: "`otlp.Header`", values: "`key=value,…`",
		help: "its headers; of each of these variables there is one for traces (`OTEL_EXPORTER_OTLP_TRACES_…`), " +
			"which comes first",
	},
	{
		env: "`OTEL_EXPORTER_OTLP_TIMEOUT`", option: "`otlp.Client`", values: "ms", value: "`10000`",
		help: "time limit of a request",
	},
	{
		env: "`OTEL_EXPORTER_OTLP_COMPRESSION`", option: "`otlp.Gzip`", values: "`gzip`, `none`", value: "`none`",
		help: "compression of requests",
	},
	{
		env:    "`OTEL_EXPORTER_OTLP_CERTIFICATE`, `…_CLIENT_CERTIFICATE`, `…_CLIENT_KEY`",
		option: "`otlp.Client`", values: "PEM file",
		help: "authorities that are trusted instead of the system's; own certificate",
	},
	{
		env:    "`OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`, `…_VALUE_LENGTH_LIMIT`, `OTEL_SPAN_LINK_COUNT_LIMIT`",
		option: "`sdktrace.WithRawSpanLimits`", values: "int", value: "128, none, 128",
		help: "limits of the SDK, which apply to sections",
	},
	{
		env: "`OTEL_TRACES_SAMPLER`, `…_ARG`", option: "`sdktrace.WithSampler`", values: "name",
		value: "`parentbased_always_on`", help: "sampler of the SDK, which selects the sections that are timed",
	},
	{
		env: "`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`", option: "`sdktrace.WithResource`", values: "`key=value,…`",
		help: "resource of the SDK",
	},
}
