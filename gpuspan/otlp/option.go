// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
)

type config struct {
	endpoint  string
	headers   http.Header
	resource  []attribute.KeyValue
	client    *http.Client
	sender    Sender
	interval  time.Duration
	batchSize int
	queue     int
	patience  time.Duration
	gzip      bool
}

// Option configures [New].
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// Endpoint sets the receiver's URL, such as http://127.0.0.1:4318. A URL without a path gets
// /v1/traces. Default: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT unchanged, otherwise
// OTEL_EXPORTER_OTLP_ENDPOINT with /v1/traces appended, otherwise http://localhost:4318/v1/traces.
func Endpoint(u string) Option { return option(func(c *config) { c.endpoint = u }) }

// Header sets a header of each request, for example for authorization. It overrides the
// environment's (OTEL_EXPORTER_OTLP_TRACES_HEADERS, otherwise OTEL_EXPORTER_OTLP_HEADERS).
func Header(name, value string) Option { return option(func(c *config) { c.headers.Set(name, value) }) }

// Resource sets the resource of all spans, like the SDK's resource: Resource(res.Attributes()...).
func Resource(kv ...attribute.KeyValue) Option {
	return option(func(c *config) { c.resource = spanattr.AppendValid(c.resource, kv) })
}

// Client sets the HTTP client of requests. Default: a client with the timeout of
// OTEL_EXPORTER_OTLP_TIMEOUT in ms, 10 s without it, that trusts the authorities in the file
// OTEL_EXPORTER_OTLP_CERTIFICATE, if it is set, instead of the system's, and identifies itself by
// OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY. As for all variables, one for traces
// (OTEL_EXPORTER_OTLP_TRACES_…) comes first.
func Client(h *http.Client) Option { return option(func(c *config) { c.client = h }) }

// Gzip compresses requests, as OTEL_EXPORTER_OTLP_COMPRESSION=gzip does.
func Gzip() Option { return option(func(c *config) { c.gzip = true }) }

// To sets a sender for another protocol than HTTP; Endpoint, Header and Client then have no effect.
func To(s Sender) Option { return option(func(c *config) { c.sender = s }) }

// Interval sets the maximum time for which a span waits for others; positive, default 1 s.
func Interval(d time.Duration) Option { return option(func(c *config) { c.interval = d }) }

// BatchSize sets the maximum number of spans of one request; positive, default 2048. A request that
// reaches 2 MiB is sent in any case.
func BatchSize(spans int) Option { return option(func(c *config) { c.batchSize = spans }) }

// Queue sets the maximum number of queued requests, positive; when the queue is full, new requests
// are dropped. Default 16, which take at most 20 MB with the default batch size.
func Queue(requests int) Option { return option(func(c *config) { c.queue = requests }) }

// RetryFor sets how long a request is retried before it is dropped; default 1 min.
func RetryFor(d time.Duration) Option { return option(func(c *config) { c.patience = d }) }

const tracesPath = "/v1/traces"

// complete sets the defaults and reports invalid values.
func (c *config) complete() error {
	var errs []error
	if c.interval <= 0 {
		errs = append(errs, fmt.Errorf("the interval must be positive, found %s", c.interval))
		c.interval = time.Second
	}
	if c.batchSize < 1 {
		errs = append(errs, fmt.Errorf("the batch size must be positive, found %d", c.batchSize))
		c.batchSize = 2048
	}
	if c.queue < 1 {
		errs = append(errs, fmt.Errorf("the queue must hold at least one request, found %d", c.queue))
		c.queue = 16
	}
	if c.sender != nil {
		return errors.Join(errs...)
	}
	for pair := range strings.SplitSeq(variable("HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); ok && name != "" {
			if text, err := url.PathUnescape(strings.TrimSpace(value)); err == nil && c.headers.Get(name) == "" {
				c.headers.Set(name, text)
			}
		}
	}
	switch v := variable("COMPRESSION"); v {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		errs = append(errs, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION must be gzip or none, found %q", v))
	}
	target, err := endpoint(c.endpoint)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if c.client == nil {
		if c.client, err = client(); err != nil {
			errs = append(errs, err)
		}
	}
	c.sender = &httpSender{url: target, headers: c.headers, client: c.client, gzip: c.gzip}
	return errors.Join(errs...)
}

// variable returns OpenTelemetry's variable of that name for traces, otherwise for all signals.
func variable(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// client returns the HTTP client that the environment describes. It is usable also with an error.
func client() (*http.Client, error) {
	var errs []error
	c := &http.Client{Timeout: 10 * time.Second}
	if v := variable("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 {
			errs = append(errs, fmt.Errorf(
				"OTEL_EXPORTER_OTLP_TIMEOUT, or _TRACES_TIMEOUT, must be a number of ms, found %q", v))
		} else {
			c.Timeout = time.Duration(ms) * time.Millisecond
		}
	}
	var security tls.Config
	if file := variable("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		security.RootCAs = x509.NewCertPool()
		if err == nil && !security.RootCAs.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%q has no certificate in PEM format", file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot use OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err))
		}
	}
	if file := variable("CLIENT_CERTIFICATE"); file != "" {
		pair, err := tls.LoadX509KeyPair(file, variable("CLIENT_KEY"))
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot use OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY: %w", err))
		} else {
			security.Certificates = []tls.Certificate{pair}
		}
	}
	if t, ok := http.DefaultTransport.(*http.Transport); ok && (security.RootCAs != nil || security.Certificates != nil) {
		t = t.Clone()
		t.TLSClientConfig = &security
		c.Transport = t
	}
	return c, errors.Join(errs...)
}

// endpoint returns where requests are sent.
func endpoint(given string) (string, error) {
	base := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	if base != "" {
		base = strings.TrimSuffix(base, "/") + tracesPath
	}
	given = cmp.Or(given, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), base, "http://localhost:4318")
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("the endpoint must be a URL such as http://127.0.0.1:4318, found %q", given)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}
