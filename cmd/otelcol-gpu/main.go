// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command otelcol-gpu is an OpenTelemetry Collector for GPU work, with commands that need no
// configuration.
//
//	otelcol-gpu                       the embedded all-in-one pipeline
//	otelcol-gpu --config FILE|NAME    your own pipeline, or a ready one such as llm
//	otelcol-gpu demo                  a simulated service through the same pipelines
//	otelcol-gpu convert --out DIR F…  profiler files to OTLP JSON and a Chrome trace
//	otelcol-gpu capture PID           the GPU activity of a running CUDA process
//	otelcol-gpu record --out FILE     device samples to a file that the gpu receiver replays
//	otelcol-gpu check FILE|-          validate OTLP against the semantic conventions; --listen for live data
//	otelcol-gpu config [NAME]         print a ready pipeline
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/httpprovider"
	"go.opentelemetry.io/collector/confmap/provider/httpsprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/config/memorylimitconverter"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/internal/spelling"
)

// version is the repository's version, used on scopes, in user agents and elsewhere; -ldflags "-X
// main.version=…" sets it for a build.
var version = gpuspan.Version

func buildInfo() component.BuildInfo {
	return component.BuildInfo{
		Command: "otelcol-gpu", Description: "OpenTelemetry Collector for GPU work",
		Version: version,
	}
}

func main() {
	err := run(os.Args[1:])
	switch {
	case errors.Is(err, errReported), errors.Is(err, convert.ErrSomeFailed): // printed already, as the next two
		os.Exit(1)
	case errors.Is(err, convert.ErrSomePartial):
		os.Exit(3)
	case errors.Is(err, convert.ErrFound):
		os.Exit(4)
	case err != nil:
		fmt.Fprintln(os.Stderr, "otelcol-gpu:", err)
		os.Exit(1)
	}
}

// errReported ends the program with a failure that was printed already.
var errReported = errors.New("failed")

func run(args []string) error {
	root, w, err := command()
	if err != nil {
		return err
	}
	root.SetArgs(named(args))
	// Here, because the Collector handles signals only shortly after it has logged that it is
	// ready.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return withHint(root.ExecuteContext(ctx), w.configuration())
}

// named replaces the name of a ready pipeline behind --config by its text. A file with that name
// has priority. With --set alone it adds the default pipeline, which the Collector would forget.
func named(args []string) []string {
	out := slices.Clone(args)
	given := func(flag string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return arg == flag || strings.HasPrefix(arg, flag+"=") })
	}
	runs := len(args) > 0 && (strings.HasPrefix(args[0], "-") || args[0] == "validate" || args[0] == "print-config")
	if text, err := config.YAML(config.AllInOne); err == nil && runs && given("--set") && !given("--config") {
		out = append(out, "--config=yaml:"+text)
	}
	for i, arg := range out {
		value, joined := strings.CutPrefix(arg, "--config=")
		if !joined && (i == 0 || out[i-1] != "--config") {
			continue
		}
		if _, err := os.Stat(value); err == nil || !slices.Contains(config.Names(), value) {
			continue
		}
		text, err := config.YAML(value)
		if err != nil {
			continue // the Collector reports the problem
		}
		out[i] = "yaml:" + text
		if joined {
			out[i] = "--config=yaml:" + text
		}
	}
	return out
}

// settings returns the settings of a Collector that runs the configuration text.
func settings(text string) otelcol.CollectorSettings {
	return otelcol.CollectorSettings{
		BuildInfo: buildInfo(),
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{"yaml:" + text},
			ProviderFactories: []confmap.ProviderFactory{
				envprovider.NewFactory(), fileprovider.NewFactory(), httpprovider.NewFactory(),
				httpsprovider.NewFactory(), yamlprovider.NewFactory(),
			},
			ConverterFactories: []confmap.ConverterFactory{newTelemetryKeys()},
		}},
	}
}

func command() (*cobra.Command, *welcome, error) {
	allInOne, err := config.YAML(config.AllInOne)
	if err != nil {
		return nil, nil, err
	}
	set := settings(allInOne)
	w := &welcome{out: os.Stderr, devices: map[string]string{}, said: map[string]bool{}}
	converters := &set.ConfigProviderSettings.ResolverSettings.ConverterFactories
	delivery := new(deliveryCheck)
	*converters = append(*converters, memorylimitconverter.NewFactory(), delivery.factory(),
		confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return w }))
	set.LoggingOptions = w.options()
	set.DisableGracefulShutdown = true // run ends the context instead
	root := otelcol.NewCommand(set)
	root.SilenceErrors = true
	root.Short = "OpenTelemetry Collector for GPU work"
	root.Long = "OpenTelemetry Collector for GPU work. Without --config it runs the embedded all-in-one pipeline\n" +
		"(print it with \"otelcol-gpu config all-in-one\"). --config accepts a file or the name of a ready pipeline,\n" +
		"such as llm. The ready pipelines log warnings and errors; set OTELGPU_LOG_LEVEL to info or debug for more."
	root.Args, root.SuggestionsMinimumDistance = noCommand, 2
	root.SetFlagErrorFunc(unknownFlag)
	for _, cmd := range root.Commands() {
		if cmd.Args != nil && cmd.Args(cmd, []string{"one"}) != nil { // validate, components, print-config
			cmd.Args = noArguments
		}
		if cmd.Name() == "validate" {
			delivery.printAfter(cmd)
		}
	}
	for _, cmd := range append(root.Commands(), root) { // the Collector prints up to forty names in one line
		for name, usage := range map[string]string{
			"config":        "`file` or name of a ready pipeline; may be repeated, later files override earlier files",
			"feature-gates": "comma-separated feature `gates` to enable, or to disable with a leading -; see featuregate",
			"set":           "override one configuration `key=value`, such as processors.batch.timeout=2s",
		} {
			if f := cmd.Flags().Lookup(name); f != nil {
				f.Usage, f.DefValue = usage, ""
			}
		}
	}
	root.AddCommand(newConfigCommand(), newDemoCommand(), newConvertCommand(), newCaptureCommand(), newRecordCommand(),
		newCheckCommand(), newHealthCommand())
	return root, w, nil
}

func newConfigCommand() *cobra.Command {
	schema := false
	cmd := &cobra.Command{
		Use:   "config [NAME]",
		Short: "Print a ready pipeline, or list all of them",
		Args:  takes(0, 1, "config takes one name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				if len(args) > 0 {
					return fmt.Errorf("--schema describes all configurations, found the name %q (remove one of the two)", args[0])
				}
				_, err := cmd.OutOrStdout().Write(config.Schema())
				return err
			}
			if len(args) == 0 {
				_, err := fmt.Fprint(cmd.OutOrStdout(), pipelines())
				return err
			}
			text, err := config.YAML(args[0])
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), text)
			return nil
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of configurations, for editors")
	return cmd
}

// interruptible returns the command's context, which run ends with the first Ctrl-C or SIGTERM. A
// second one ends the process immediately, and lists the incomplete files.
func interruptible(cmd *cobra.Command, leaves string) (context.Context, context.CancelFunc) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE) // a write to a closed pipe fails instead, and the command removes what is incomplete
	ended := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-ended:
				return
			case <-signals:
			}
		}
		fmt.Fprintf(os.Stderr, "otelcol-gpu: stopped immediately: %s\n", leaves)
		os.Exit(130)
	}()
	return cmd.Context(), sync.OnceFunc(func() {
		signal.Stop(signals)
		close(ended)
	})
}

//go:embed builder-full.yaml
var fullBuild string

var (
	noFile      = regexp.MustCompile(`unable to read the file file:([\w/-]+): .*: no such file`)
	unknownType = regexp.MustCompile(`'(extension|receiver|processor|exporter|connector)s' unknown type: "(\w+)"`)
)

// pipelines lists the ready pipelines, what each is for and what it needs.
func pipelines() string {
	var b strings.Builder
	for _, name := range config.Names() {
		about, needs := config.About(name)
		if needs != "" {
			about += " (" + needs + ")"
		}
		fmt.Fprintf(&b, "%-25s %s\n", name, about)
	}
	return b.String()
}

// withHint adds a remedy to an error of the Collector that has none; conf is the configuration, if
// it could be read.
func withHint(err error, conf map[string]any) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (stop the program that uses the port, or set another address in the configuration; for the "+
			"ready pipelines, use the environment variables listed by \"otelcol-gpu config all-in-one\")", err)
	}
	if err == nil {
		return nil
	}
	if m := noFile.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%w (%q is not a ready pipeline either; they are: %s)", err, m[1],
			strings.Join(config.Names(), ", "))
	}
	if strings.Contains(err.Error(), "missing port in address") {
		return fmt.Errorf("%w (write the address as host:port, such as 127.0.0.1:4317)", err)
	}
	if strings.Contains(err.Error(), "service.profilesSupport") {
		return fmt.Errorf("%w (start with --feature-gates service.profilesSupport)", err)
	}
	if strings.Contains(err.Error(), "found character that cannot start any token") {
		return fmt.Errorf("%w (indent YAML with spaces, not tabs)", err)
	}
	if m := unknownType.FindStringSubmatch(err.Error()); m != nil {
		known := componentNames()
		return fmt.Errorf("%w%s", err, missingHint(missing(conf, m, known), known))
	}
	return err
}

// missing returns all components of a configuration that this build lacks, as "receiver kafka": the
// Collector reports at most one for each section, which is used if the configuration is unknown.
func missing(conf map[string]any, reported []string, known map[string][]string) []string {
	var out []string
	for kind, in := range known {
		ids, _ := conf[kind+"s"].(map[string]any)
		for id := range ids {
			name, _, _ := strings.Cut(id, "/")
			if _, err := component.NewType(name); err == nil && !slices.Contains(in, name) {
				out = append(out, kind+" "+name)
			}
		}
	}
	if len(out) == 0 {
		out = []string{reported[1] + " " + reported[2]}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// componentNames returns the types of this build's components by kind.
func componentNames() map[string][]string {
	set, err := factories()
	if err != nil {
		return nil
	}
	return map[string][]string{
		"extension": types(set.Extensions), "receiver": types(set.Receivers), "processor": types(set.Processors),
		"exporter": types(set.Exporters), "connector": types(set.Connectors),
	}
}

func types[F any](m map[component.Type]F) (list []string) {
	for t := range m {
		list = append(list, t.String())
	}
	slices.Sort(list)
	return list
}

// missingHint returns in which build the components are, or which name was probably meant.
func missingHint(list []string, known map[string][]string) string {
	var full, nowhere, misspelled []string
	onlyOTTL := true
	for _, c := range list {
		kind, name, _ := strings.Cut(c, " ")
		onlyOTTL = onlyOTTL &&
			slices.Contains([]string{"processor filter", "processor transform", "processor tail_sampling"}, c)
		quoted := fmt.Sprintf("%s %q", kind, name)
		meant := spelling.Nearest(name, known[kind])
		if strings.Contains(fullBuild, "/"+strings.ReplaceAll(name, "_", "")+kind+" ") {
			full = append(full, quoted)
			continue
		}
		nowhere = append(nowhere, quoted)
		if meant != "" {
			misspelled = append(misspelled, fmt.Sprintf("%q", meant))
		}
	}
	const own = "build a Collector that has them, as deploy/own-collector does"
	switch {
	case len(full) == 0 && len(misspelled) == len(nowhere):
		return fmt.Sprintf(" (did you mean %s?)", strings.Join(misspelled, " and "))
	case len(full) == 0 && len(nowhere) == 1: // the Collector's error lists the known names
		return ""
	case len(full) == 0:
		return fmt.Sprintf(" (no build of otelgpu has the %s: correct the names, or %s)",
			strings.Join(nowhere, ", the "), own)
	case len(nowhere) > 0:
		return fmt.Sprintf(" (the full build has the %s, but no build of otelgpu has the %s: correct the names, or %s)",
			strings.Join(full, ", the "), strings.Join(nowhere, ", the "), own)
	}
	how := `use otelcol-gpu-full of the release, or "make build-full", which builds cmd/otelcol-gpu/build/otelcol-gpu-full`
	if onlyOTTL {
		how += `; or "go build -tags ottl ./cmd/otelcol-gpu"`
	}
	verb := "is"
	if len(full) > 1 {
		verb = "are"
	}
	return fmt.Sprintf(" (the %s %s part of the full build only: %s)", strings.Join(full, ", the "), verb, how)
}
