// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestEveryPipelineIsYAMLWithAService(t *testing.T) {
	names := config.Names()
	require.Equal(t, []string{
		"all-in-one", "dcgm-exporter", "jaeger", "kafka/agent", "kafka/gateway", "kubernetes/agent",
		"kubernetes/dcgm-exporter", "kubernetes/gateway", "llm", "profiles", "prometheus", "tempo", "training",
	}, names)
	for _, name := range names {
		text, err := config.YAML(name)
		require.NoError(t, err)
		var tree map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &tree), name)
		require.Contains(t, tree, "service", name)
	}
}

func TestAnUnknownPipelineIsNamed(t *testing.T) {
	_, err := config.YAML("loki")
	require.EqualError(t, err,
		`no pipeline "loki" (there are all-in-one, dcgm-exporter, jaeger, kafka/agent, kafka/gateway, kubernetes/agent, `+
			`kubernetes/dcgm-exporter, kubernetes/gateway, llm, profiles, prometheus, tempo, training)`)
}

var update = flag.Bool("update", false, "write the copies of pipelines, rules and dashboards in deploy")

// The Helm chart and the manifests need copies, because neither reads files outside its folder.
func TestDeploymentsHaveTheProjectsFiles(t *testing.T) {
	const chart = "../deploy/helm/otelgpu/files/"
	want := map[string]string{chart + "config/capture.yaml": "../deploy/kubernetes-capture/capture.yaml"}
	folders := map[string]string{
		chart + "config/": "kubernetes/*.yaml", chart + "alerts/": "alerts/*.yaml", chart + "dashboards/": "grafana/*.json",
		"../deploy/kubernetes/config/":               "kubernetes/[ag]*.yaml", // agents and gateways
		"../deploy/kubernetes-dcgm-exporter/config/": "kubernetes/dcgm-exporter.yaml",
	}
	for folder, pattern := range folders {
		origins, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, origins, pattern)
		for _, origin := range origins {
			want[folder+filepath.Base(origin)] = origin
		}
	}
	for folder := range folders {
		copies, err := filepath.Glob(folder + "*")
		require.NoError(t, err)
		for _, path := range copies {
			switch {
			case want[path] != "", path == chart+"config/direct.yaml": // which only the chart has
			case *update:
				require.NoError(t, os.Remove(path))
			default:
				assert.Fail(t, path+" has no origin (make generate)")
			}
		}
	}
	for path, origin := range want {
		b, err := os.ReadFile(origin)
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(path, b, 0o644))
			continue
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err, "make generate")
		assert.Equal(t, string(b), string(have), "%s differs from %s (make generate)", path, origin)
	}
}

// A variable that only one side uses has no effect.
func TestManifestsAndPipelinesUseTheSameVariables(t *testing.T) {
	variable := regexp.MustCompile(`OTELGPU_[A-Z_]+`)
	for _, name := range []string{"agent", "gateway"} {
		manifest, err := os.ReadFile(filepath.Join("..", "deploy", "kubernetes", name+".yaml"))
		require.NoError(t, err)
		pipeline, err := config.YAML("kubernetes/" + name)
		require.NoError(t, err)
		read := regexp.MustCompile(`\$\{env:(OTELGPU_[A-Z_]+)`).FindAllStringSubmatch(pipeline, -1)
		require.NotEmpty(t, read, name)
		for _, v := range variable.FindAllString(string(manifest), -1) {
			require.Contains(t, pipeline, v, "deploy/kubernetes/%s.yaml names it", name)
		}
		for _, v := range read {
			if strings.HasSuffix(v[1], "_IP") { // known only on the node
				require.Contains(t, string(manifest), "name: "+v[1], "config/kubernetes/%s.yaml reads it", name)
			}
		}
	}
}

// The gateway must know that a rank was slow before it samples the rank's trace.
func TestTheGatewayDecidesAfterRanksAreCompared(t *testing.T) {
	text, err := config.YAML("kubernetes/gateway")
	require.NoError(t, err)
	var c struct {
		Processors map[string]struct {
			DecisionWait time.Duration `yaml:"decision_wait"`
		}
		Connectors map[string]struct {
			FlushInterval time.Duration `yaml:"flush_interval"`
			Stragglers    struct {
				MaxWait time.Duration `yaml:"max_wait"`
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &c))
	jobs := c.Connectors["gpu_metrics/jobs"]
	require.NotZero(t, jobs.FlushInterval)
	require.NotZero(t, jobs.Stragglers.MaxWait)
	require.Less(t, jobs.Stragglers.MaxWait+jobs.FlushInterval, c.Processors["tail_sampling"].DecisionWait)
}

// Trying a pipeline on a machine must not open a port to others.
func TestTheReadyPipelinesListenOnTheLoopbackInterface(t *testing.T) {
	listen := regexp.MustCompile(`(?m)^ +(?:endpoint|host): (.*)$`)
	for _, name := range config.Names() {
		if strings.HasPrefix(name, "kubernetes/") {
			continue
		}
		text, err := config.YAML(name)
		require.NoError(t, err)
		found := 0
		for _, m := range listen.FindAllStringSubmatch(text, -1) {
			require.Regexp(t, `^(\$\{env:OTELGPU_[A-Z_]+:-)?(http://)?127\.0\.0\.1`, m[1], name)
			found++
		}
		require.GreaterOrEqual(t, found, 3, name)
	}
}

// A web site that resolves its name to 127.0.0.1 must not read metrics or send spans through a
// user's browser.
func TestTheReadyPipelinesCheckHosts(t *testing.T) {
	type listener struct {
		Endpoint    string
		Middlewares []struct{ ID string }
	}
	checks := []struct{ ID string }{{"host_check"}}
	for _, name := range config.Names() {
		if strings.HasPrefix(name, "kubernetes/") { // their listeners are not on loopback
			continue
		}
		text, err := config.YAML(name)
		require.NoError(t, err)
		var c struct {
			Receivers map[string]struct{ Protocols struct{ HTTP *listener } }
			Exporters map[string]listener
			Service   struct{ Extensions []string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &c), name)
		require.Contains(t, c.Service.Extensions, "host_check", name)
		found := 0
		for id, r := range c.Receivers {
			if r.Protocols.HTTP != nil {
				require.Equal(t, checks, r.Protocols.HTTP.Middlewares, "%s of %s", id, name)
				found++
			}
		}
		for id, e := range c.Exporters {
			if typ, _, _ := strings.Cut(id, "/"); typ == "prometheus" {
				require.Equal(t, checks, e.Middlewares, "%s of %s", id, name)
				found++
			}
		}
		require.Positive(t, found, name)
	}
}

// An exporter next to a counting connector must not reject data, because gpu_join would retry the
// spans, and the connector would count them again.
func TestExportersNextToCountingConnectorsNeverReject(t *testing.T) {
	type pipeline struct{ Receivers, Processors, Exporters []string }
	kind := func(id string) string { before, _, _ := strings.Cut(id, "/"); return before }
	never := map[string]bool{"debug": true, "prometheus": true, "gpu_page": true} // have no queue and accept everything
	for _, name := range config.Names() {
		text, err := config.YAML(name)
		require.NoError(t, err)
		var c struct {
			Connectors map[string]any
			Exporters  map[string]struct {
				SendingQueue struct {
					Enabled *bool
					Block   bool `yaml:"block_on_overflow"`
				} `yaml:"sending_queue"`
				Retry struct {
					MaxElapsed string `yaml:"max_elapsed_time"`
				} `yaml:"retry_on_failure"`
			}
			Service struct{ Pipelines map[string]pipeline }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &c), name)
		var reached func(exporters []string) []string
		reached = func(exporters []string) (out []string) {
			for _, id := range exporters {
				if _, connector := c.Connectors[id]; !connector {
					out = append(out, id)
				} else if kind(id) == "forward" {
					for _, p := range c.Service.Pipelines {
						if slices.Contains(p.Receivers, id) && !slices.Contains(p.Processors, "tail_sampling") { // which accepts everything
							out = append(out, reached(p.Exporters)...)
						}
					}
				}
			}
			return out
		}
		for signal, p := range c.Service.Pipelines {
			counts := slices.ContainsFunc(p.Exporters, func(id string) bool {
				return kind(id) == "gpu_metrics" ||
					kind(id) == "gpu_requests"
			})
			if kind(signal) != "traces" || !counts {
				continue
			}
			for _, id := range reached(p.Exporters) {
				if never[kind(id)] {
					continue
				}
				queue := c.Exporters[id].SendingQueue
				none := queue.Enabled != nil && !*queue.Enabled // the sender waits
				require.True(t, none || queue.Block, "%s: %s needs sending_queue: {block_on_overflow: true}", name, id)
				require.Equal(t, "0s", c.Exporters[id].Retry.MaxElapsed, "%s: %s needs retry_on_failure: {max_elapsed_time: 0s}",
					name, id)
			}
		}
	}
}

// Concurrent requests overtake each other, so points of a series would arrive out of order.
func TestMetricsArePushedOneRequestAfterTheOther(t *testing.T) {
	pushed := 0
	for _, name := range config.Names() {
		text, err := config.YAML(name)
		require.NoError(t, err)
		var c struct {
			Exporters map[string]struct {
				SendingQueue struct {
					Consumers int `yaml:"num_consumers"`
				} `yaml:"sending_queue"`
			}
			Service struct {
				Pipelines map[string]struct{ Exporters []string }
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &c), name)
		for signal, p := range c.Service.Pipelines {
			for _, id := range p.Exporters {
				if strings.HasPrefix(signal, "metrics") && strings.HasPrefix(id, "otlp") {
					require.Equal(t, 1, c.Exporters[id].SendingQueue.Consumers, "%s: %s needs sending_queue: {num_consumers: 1}", name, id)
					pushed++
				}
			}
		}
	}
	require.GreaterOrEqual(t, pushed, 3)
}

// By default, an OTLP receiver accepts requests of up to 4 MiB over gRPC, and rejects larger ones
// permanently. Batches stay below that. Over HTTP the limit is the same: a request of 12 MiB can
// nest values so deep that decoding it overflows the stack.
func TestRequestsFitTheirReceiver(t *testing.T) {
	type queue struct {
		Wait  bool `yaml:"wait_for_result"`
		Batch *struct {
			Sizer   string
			MaxSize int `yaml:"max_size"`
		}
	}
	const taken = 4 << 20
	batched, byHTTP := 0, 0
	for _, name := range config.Names() {
		text, err := config.YAML(name)
		require.NoError(t, err)
		var c struct {
			Receivers map[string]struct {
				Protocols struct {
					GRPC struct {
						Max int `yaml:"max_recv_msg_size_mib"`
					}
					HTTP struct {
						Endpoint string
						Max      int `yaml:"max_request_body_size"`
					}
				}
			}
			Processors map[string]struct {
				MaxSpanSize int `yaml:"max_span_size"`
			}
			Exporters map[string]struct {
				SendingQueue queue `yaml:"sending_queue"`
				Protocol     struct {
					OTLP struct {
						SendingQueue queue `yaml:"sending_queue"`
					}
				}
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &c), name)
		for id, e := range c.Exporters {
			b := e.SendingQueue.Batch
			if strings.HasPrefix(id, "load_balancing/") {
				b = e.Protocol.OTLP.SendingQueue.Batch
				require.True(t, e.Protocol.OTLP.SendingQueue.Wait, "%s: %s", name, id)
			}
			// The queue of gateways behind Kafka is Kafka, whose messages are smaller. Profiles
			// cannot be split.
			if strings.HasPrefix(id, "load_balancing/") ||
				strings.HasPrefix(id, "otlp_grpc/") && name != "kafka/gateway" && id != "otlp_grpc/profiles" {
				require.NotNil(t, b, "%s: %s", name, id)
				require.Equal(t, "bytes", b.Sizer, "%s: %s", name, id)
				require.Positive(t, b.MaxSize, "%s: %s", name, id)
				require.Less(t, b.MaxSize, taken, "%s: %s", name, id)
				batched++
			}
		}
		for id, e := range c.Exporters {
			if b := e.SendingQueue.Batch; b != nil && b.Sizer == "bytes" && name != "kubernetes/gateway" {
				largest := 3_500_000 // the default
				if n := c.Processors["gpu_join"].MaxSpanSize; n != 0 {
					largest = n
				}
				require.Contains(t, c.Processors, "gpu_join", name)
				require.Less(t, largest, b.MaxSize/10*9, "%s: %s drops larger spans, and others with them", name, id)
			}
		}
		for id, r := range c.Receivers {
			require.Zero(t, r.Protocols.GRPC.Max, "%s: %s", name, id)
			if r.Protocols.HTTP.Endpoint != "" {
				require.Equal(t, taken, r.Protocols.HTTP.Max, "%s: %s", name, id)
				byHTTP++
			}
		}
	}
	require.Equal(t, 9, batched)
	require.Greater(t, byHTTP, 5)
}

func TestJaegerConfigurationUsesRegisteredNames(t *testing.T) {
	var ui struct {
		LinkPatterns   []struct{ Type, Key, URL, Text string }
		TopTagPrefixes []string
	}
	d := json.NewDecoder(bytes.NewReader(config.JaegerUI()))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&ui))
	registered := func(matches func(name string) bool) bool {
		return slices.ContainsFunc(semconv.Attributes(), func(a semconv.Attribute) bool { return matches(a.Name) })
	}
	require.NotEmpty(t, ui.TopTagPrefixes)
	for _, prefix := range ui.TopTagPrefixes {
		require.True(t, registered(func(name string) bool { return strings.HasPrefix(name, prefix) }), prefix)
	}
	require.NotEmpty(t, ui.LinkPatterns)
	for _, l := range ui.LinkPatterns {
		require.Equal(t, "tags", l.Type)
		require.True(t, registered(func(name string) bool { return name == l.Key }), l.Key)
		require.True(t, strings.HasPrefix(l.URL, "http://localhost:9465/#"), "%s is where gpu_page listens", l.URL)
	}
}
