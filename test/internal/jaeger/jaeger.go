// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package jaeger builds and runs the real Jaeger, version 2, with storage in memory, and reads
// traces back through its API version 3, which keeps nanoseconds and types (the older API and the
// UI round to microseconds).
package jaeger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// ErrNotFound means that Jaeger does not have the trace, or not yet.
var ErrNotFound = errors.New("jaeger: no such trace")

// Addresses on which a Jaeger listens, host:port.
type Addresses struct {
	OTLPGRPC  string
	OTLPHTTP  string
	Query     string // HTTP: UI and API
	QueryGRPC string
}

// FreeAddresses returns addresses with free ports.
func FreeAddresses() (Addresses, error) {
	var a Addresses
	for _, p := range []*string{&a.OTLPGRPC, &a.OTLPHTTP, &a.Query, &a.QueryGRPC} {
		var err error
		if *p, err = freeport.Address(); err != nil {
			return a, err
		}
	}
	return a, nil
}

// PageVariable is the environment variable that names the folder of Jaeger's page, built from
// jaeger-ui of the same version. Jaeger's module contains only a placeholder.
const PageVariable = "OTELGPU_JAEGER_UI"

// Config returns Jaeger's configuration: OTLP input, storage in memory, no internal telemetry. ui
// is the file that configures the page.
func (a Addresses) Config(ui string) string {
	return fmt.Sprintf(`service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [jaeger_storage_exporter]
  telemetry:
    metrics:
      level: none
extensions:
  jaeger_storage:
    backends:
      memory:
        memory:
          max_traces: 100000
  jaeger_query:
    storage:
      traces: memory
    ui:
      config_file: %q
      assets_path: %q
    http:
      endpoint: %q
    grpc:
      endpoint: %q
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: %q
      http:
        endpoint: %q
exporters:
  jaeger_storage_exporter:
    trace_storage: memory
`, ui, os.Getenv(PageVariable), a.Query, a.QueryGRPC, a.OTLPGRPC, a.OTLPHTTP)
}

// Jaeger is a running Jaeger.
type Jaeger struct {
	Addresses
	*program.Program
}

// Start runs a binary made by Build; dir receives its configuration.
func Start(ctx context.Context, path, dir string, a Addresses) (*Jaeger, error) {
	yaml, ui := filepath.Join(dir, "jaeger.yaml"), filepath.Join(dir, "ui.json")
	if err := errors.Join(os.WriteFile(yaml, []byte(a.Config(ui)), 0o644),
		os.WriteFile(ui, config.JaegerUI(), 0o644)); err != nil {
		return nil, err
	}
	// Jaeger traces its own query service into its own storage otherwise.
	p, err := program.Start(ctx, path, []string{"--config", yaml}, []string{"OTEL_TRACES_SAMPLER=always_off"})
	if err != nil {
		return nil, err
	}
	if err := p.WaitFor("Everything is ready", time.Minute); err != nil {
		return nil, errors.Join(err, p.Stop(5*time.Second))
	}
	return &Jaeger{a, p}, nil
}

// Page returns the start page, with the configuration that Jaeger has put into it.
func (j *Jaeger) Page(ctx context.Context) (string, error) {
	b, err := j.get(ctx, "/", nil)
	return string(b), err
}

// Trace reads one trace by its identity (32 hex digits), or returns ErrNotFound.
func (j *Jaeger) Trace(ctx context.Context, id string) (ptrace.Traces, error) {
	return j.traces(ctx, "/api/v3/traces/"+id, nil)
}

// Find reads up to n traces of a service that started within an interval.
func (j *Jaeger) Find(ctx context.Context, service string, from, to time.Time, n int) (ptrace.Traces, error) {
	return j.traces(ctx, "/api/v3/traces", url.Values{
		"query.service_name":   {service},
		"query.start_time_min": {from.UTC().Format(time.RFC3339Nano)},
		"query.start_time_max": {to.UTC().Format(time.RFC3339Nano)},
		"query.num_traces":     {fmt.Sprint(n)}, // required
	})
}

// Services lists the services that Jaeger knows.
func (j *Jaeger) Services(ctx context.Context) ([]string, error) {
	var answer struct {
		Services []string `json:"services"`
	}
	err := j.read(ctx, "/api/v3/services", nil, &answer)
	return answer.Services, err
}

// Warnings reads a trace by the older API, which the UI uses, and returns the warnings of its
// spans, such as the ones of the clock-skew adjustment.
func (j *Jaeger) Warnings(ctx context.Context, id string) ([]string, error) {
	var answer struct {
		Data []struct {
			Spans []struct {
				Warnings []string `json:"warnings"`
			} `json:"spans"`
		} `json:"data"`
	}
	if err := j.read(ctx, "/api/traces/"+id, nil, &answer); err != nil {
		return nil, err
	}
	var out []string
	for _, t := range answer.Data {
		for _, s := range t.Spans {
			out = append(out, s.Warnings...)
		}
	}
	return out, nil
}

func (j *Jaeger) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	u := url.URL{Scheme: "http", Host: j.Query, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true // no idle connection outlives the response
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("jaeger: GET %s: %s: %s", u.String(), resp.Status, b)
	}
	return b, nil
}

// read reads a JSON response.
func (j *Jaeger) read(ctx context.Context, path string, query url.Values, into any) error {
	b, err := j.get(ctx, path, query)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// traces reads a response of the v3 API, OTLP JSON below "result".
func (j *Jaeger) traces(ctx context.Context, path string, query url.Values) (ptrace.Traces, error) {
	var answer struct {
		Result json.RawMessage `json:"result"`
	}
	if err := j.read(ctx, path, query, &answer); err != nil {
		return ptrace.Traces{}, err
	}
	if len(answer.Result) == 0 {
		return ptrace.NewTraces(), nil
	}
	return (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(answer.Result)
}

// Version is Jaeger's module version. Its v1.x releases hold both generations; cmd/jaeger is the
// second.
const Version = "v1.76.0"

// ErrUnavailable is returned by Build when the module cannot be downloaded.
type ErrUnavailable struct{ Err error }

func (e *ErrUnavailable) Error() string {
	return fmt.Sprintf("cannot download Jaeger %s: %v", Version, e.Err)
}

// Unwrap returns the go command's error.
func (e *ErrUnavailable) Unwrap() error { return e.Err }

// Build returns the path of the jaeger binary. The first call on a machine compiles it in the
// module's own directory, with the sums that it was released with (a module that requires Jaeger
// cannot verify all of them, and go install rejects its replace lines), which takes 2 to 6 minutes
// on 2 cores; later ones find it in the user's cache.
func Build(ctx context.Context) (string, error) {
	name := fmt.Sprintf("jaeger-%s-%s", Version, runtime.Version())
	return program.Cached(ctx, name, func(ctx context.Context, path string) error {
		alone := []string{"GOWORK=off"}
		out, err := program.Go(ctx, os.TempDir(), alone, "mod", "download", "-json",
			"github.com/jaegertracing/jaeger@"+Version)
		if err != nil {
			return &ErrUnavailable{err}
		}
		var module struct{ Dir string }
		if err := json.Unmarshal(out, &module); err != nil {
			return fmt.Errorf("cannot read the output of go mod download for Jaeger: %w", err)
		}
		_, err = program.Go(ctx, module.Dir, append(alone, "GOGC=400"), "build", "-ldflags=-s -w", "-o", path, "./cmd/jaeger")
		return err
	})
}
