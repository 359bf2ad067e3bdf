// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package demo runs an instrumented inference service and a training loop through the Collector's
// own pipelines, inside one process, and shows the output.
package demo

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/otel"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/pipeline"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/exporter/gpupageexporter"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver"
)

//go:embed pipeline.yaml.tmpl
var overlay string

// Options of Run.
type Options struct {
	Duration time.Duration // how long the workload runs
	Out      string        // folder of the files, which is created; empty: no files
	Terminal *os.File      // redraw the table in place while it runs; nil: none
	// where spans are sent by OTLP as well: host:port (gRPC) or http(s)://host:port; empty: nowhere
	Send      string
	HTML      bool // write the page as a file, too
	OTLP      bool // write spans.json and metrics.json, too: about 1.8 MB/s
	Info      component.BuildInfo
	Factories func() (otelcol.Factories, error)
}

const (
	// shutdownTimeout bounds the flush of the workload's spans into the pipeline.
	shutdownTimeout = 10 * time.Second
	// settled is how long the device is sampled after the last span: slightly longer than
	// gpu_join's settle delay, so that the last spans are joined like all others.
	settled = 2 * time.Second
)

type files struct {
	Socket, Spans, Metrics, Trace, Page string

	OTLP            bool   // write Spans and Metrics
	Store, Endpoint string // the exporter to a store and its endpoint, empty without a store
	Plain           bool   // without TLS
}

// Run ends when the duration is over or the context ends, in both cases with drained pipelines and
// complete files.
func Run(ctx context.Context, out io.Writer, o Options) error {
	if o.Duration <= 0 {
		return fmt.Errorf("the duration must be positive, found %s", o.Duration)
	}
	if o.Out == "" && (o.OTLP || o.HTML) {
		return errors.New("`--files` and `--html` write into `--out`, which is empty")
	}
	if err := os.MkdirAll(cmp.Or(o.Out, "."), 0o755); err != nil {
		return fmt.Errorf("cannot create the output directory: %w", err)
	}
	// The socket's path is short (the system allows 108 bytes), so it is not in the output folder.
	scratch, err := os.MkdirTemp("", "otelgpu")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	f := files{
		Socket: filepath.Join(scratch, "otlp.sock"), Spans: filepath.Join(o.Out, "spans.json"),
		Metrics: filepath.Join(o.Out, "metrics.json"), Trace: filepath.Join(o.Out, "trace.json.gz"),
		OTLP: o.OTLP,
	}
	if o.Out == "" {
		f.Trace = ""
	}
	if err := f.send(o.Send); err != nil {
		return err
	}
	live, err := listenForPage()
	if err != nil {
		return err
	}
	defer live.Close() // if the pipeline has not done so
	f.Page = live.Addr().String()
	gpu := newGPU()
	defer gpu.Close()
	yaml, err := configuration(f)
	if err != nil {
		return err
	}

	table, seen := summarytable.New(), page.New()
	p, err := pipeline.Start(ctx, o.Info, o.factories(gpu, table, seen, live), yaml...)
	if err != nil {
		return err
	}
	intro := fmt.Sprintf("A training job of %d simulated GPUs shares the first one with an inference service for %s.\n"+
		"Every value is marked as simulated (gpu.timing.source). Press Ctrl-C to stop.\nLive page: http://%s\n\n", devices,
		o.Duration, f.Page)
	width := summarytable.Terminal(o.Terminal).Long().Width
	fmt.Fprint(out, wrap(intro, width))

	// The SDK reports a periodic collection that its own shutdown interrupted; the shutdown
	// collects again.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "otelcol-gpu demo:", err)
		}
	}))
	began := time.Now()
	workload, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() { watchTable(workload, p.Done(), out, intro, table, o.Terminal) })
	err = runWorkload(workload, gpu, f.Socket, o.Duration)
	cancel()
	watch.Wait()
	select {
	case <-p.Done():
	case <-time.After(settled):
	}
	if stop := p.Stop(); stop != nil {
		err = errors.Join(err, stop)
	}
	if err != nil {
		return err
	}
	spans, gpuSpans := table.Spans()
	fmt.Fprintf(out, "\nAfter %s: %d spans, %d of them GPU spans.\n\n", time.Since(began).Round(100*time.Millisecond),
		spans, gpuSpans)
	if err := table.Render(out, summarytable.Terminal(o.Terminal).Long()); err != nil {
		return err
	}
	recorded := seen.State(page.Query{Range: time.Since(began), Saved: true})
	width = summarytable.Terminal(o.Terminal).Long().Width // the terminal may have been resized
	writeFindings(out, recorded.Findings, width)
	if err := epilogue(out, f, width); err != nil || !o.HTML {
		return err
	}
	recorded.Flames = seen.Flames()
	path, err := page.WriteReport(o.Out, "report.html", recorded)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s\n%s\n", path,
		wrap("    the page as it was: open it in a browser; it needs nothing else", width))
	return err
}

// send selects the exporter for a store: HTTP for a URL, otherwise gRPC without TLS. A store that
// does not listen is an error now rather than lost spans at the end.
func (f *files) send(to string) error {
	if to == "" {
		return nil
	}
	f.Store, f.Endpoint, f.Plain = "otlp_grpc/store", to, true
	address := to
	if u, err := url.Parse(to); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		f.Store, f.Plain = "otlp_http/store", u.Scheme == "http"
		address = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), u.Scheme))
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return fmt.Errorf("`--otlp` must be host:port or http(s)://host:port, found %q", to)
	}
	if proxy, _ := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: address}}); proxy != nil {
		return nil // the proxy connects
	}
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return fmt.Errorf("cannot reach the trace store of `--otlp` at %s: %w (start it first)", to, err)
	}
	return c.Close()
}

// factories returns the distribution's components, with the table as one more exporter, and with
// the simulated device of the workload behind the gpu receiver.
func (o Options) factories(
	gpu *simgpu.GPU, table *summarytable.Table, seen *page.Model, listener net.Listener,
) func() (otelcol.Factories, error) {
	return func() (otelcol.Factories, error) {
		f, err := o.Factories()
		if err != nil {
			return f, err
		}
		simulated := gpureceiver.NewFactory(gpureceiver.WithSimulated(gpu))
		f.Receivers[simulated.Type()] = simulated
		(&pipeline.Sink{Traces: table.Add}).AddTo(f.Exporters)
		live := gpupageexporter.NewFactory(gpupageexporter.WithModel(seen), gpupageexporter.WithListener(listener))
		f.Exporters[live.Type()] = live
		return f, nil
	}
}

// configuration returns the all-in-one pipeline and the demo's overrides.
func configuration(f files) ([]string, error) {
	base, err := config.YAML(config.AllInOne)
	if err != nil {
		return nil, err
	}
	text, err := pipeline.Fill(overlay, f)
	return []string{base, text}, err
}

// listenForPage listens at the page's usual address, or at a free port if another program (a
// Collector, another demo) has that. The address is kept until the pipeline serves there: another
// demo may start in the meantime.
func listenForPage() (net.Listener, error) {
	for _, address := range []string{"127.0.0.1:9465", "127.0.0.1:0"} {
		if l, err := net.Listen("tcp", address); err == nil {
			return l, nil
		}
	}
	return nil, errors.New("no free port on the loopback interface for the page")
}

// writeFindings writes the findings in lines of a width; 0 means any width.
func writeFindings(out io.Writer, list []finding.Finding, width int) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(out, "\nWhat stands out:")
	for _, f := range list {
		fmt.Fprintln(out, printable.Wrapped(printable.Line(sentence(f)), width, "  ", "    "))
	}
}

// sentence returns a finding as the page shows it: kind, cause and effect, remedy and example.
func sentence(f finding.Finding) string {
	text := strings.ReplaceAll(f.Kind, "_", " ") + ": " + strings.Join(f.Chain, " -> ")
	if f.Remedy != "" {
		text += "; try: " + f.Remedy
	}
	if f.Trace != "" {
		text += " (trace " + f.Trace + ")"
	}
	return text
}

func epilogue(out io.Writer, f files, width int) error {
	var text strings.Builder
	wrote := func(path, what string) {
		size := ""
		if info, err := os.Stat(path); err == nil {
			size = fmt.Sprintf(" (%.1f MB)", float64(info.Size())/1e6)
		}
		fmt.Fprintf(&text, "\n%s%s\n    %s", path, size, what)
	}
	if f.Trace != "" {
		wrote(f.Trace, "open it in https://ui.perfetto.dev: streams, phases and device counters on one time axis")
	}
	if f.OTLP {
		wrote(f.Spans, "the spans as OTLP JSON, one request per line")
		wrote(f.Metrics, "the metrics of the device and of the operations, likewise")
	}
	text.WriteString(`

To see the traces in Jaeger or another store: otelcol-gpu demo --otlp HOST:PORT
To keep spans and metrics as OTLP JSON, too: otelcol-gpu demo --files
To trace your own service: otelcol-gpu --config jaeger
`)
	_, err := io.WriteString(out, wrap(text.String(), width))
	return err
}

// wrap breaks each line of a text at a width, with the line's own indentation; 0 is any width.
func wrap(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		rest := strings.TrimLeft(l, " ")
		indent := l[:len(l)-len(rest)]
		lines[i] = printable.Wrapped(rest, width, indent, indent)
	}
	return strings.Join(lines, "\n")
}
