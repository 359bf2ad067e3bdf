// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Services work on one device at the same time, in the same traces, and two gateways share their
// spans. After gpu_join the division does not matter: counts and energy, summed over the gateways,
// equal the totals of the spans and of the device. Before gpu_join, each part is attributed all
// energy of the device, as its README documents.
func TestSpansMayBeDividedAmongGatewaysBehindTheJoin(t *testing.T) {
	t.Parallel()
	binary := fullBuild(t)
	const services = 16 // enough that each gateway has some
	const count, energy = "gpu_operation_count_total", "gpu_operation_energy_joules_total"
	for _, tt := range []struct {
		key   string // routing key of the exporter
		times float64
		start func(t *testing.T, key string, store *store, entry ports, metrics [2]string)
	}{
		{"traceID", 1, agentAndGateways(binary)},
		{"service", 1, agentAndGateways(binary)},
		{"service", 2, joinBehindTheBalancer(binary)},
	} {
		t.Run(fmt.Sprintf("by %s, %v times the joules", tt.key, tt.times), func(t *testing.T) {
			t.Parallel()
			store, entry := newStore(t), newPorts(t)
			store.open(t)
			metrics := [2]string{freeAddress(t), freeAddress(t)}
			tt.start(t, tt.key, store, entry, metrics)
			w := newWorker(t, entry.otlp)
			w.others = services - 1
			w.work(5 * time.Second)
			both := func(name string) float64 { return scrape(t, metrics[0], name, "") + scrape(t, metrics[1], name, "") }
			waitUntil(time.Minute, func() bool {
				n, _ := store.count()
				return n >= w.accepted && both(count) >= float64(services*w.gpu) &&
					math.Abs(both(energy)/w.joules()/tt.times-1) < 1e-9
			})
			spans, _ := store.count()
			require.Equal(t, w.accepted, spans)
			require.InEpsilon(t, tt.times*w.joules(), store.energy(), 1e-9)
			require.EqualValues(t, services*w.gpu, both(count))
			require.InEpsilon(t, tt.times*w.joules(), both(energy), 1e-9)
			for i, address := range metrics {
				part := scrape(t, address, count, "")
				require.Positive(t, part, "both gateways have a part")
				t.Logf("gateway %d: %v operations, %.1f J", i, part, scrape(t, address, energy, ""))
			}
			t.Logf("%d operations on the device, %.1f J of it, %.1f J on spans", services*w.gpu, w.joules(), store.energy())
		})
	}
}

// agentAndGateways starts the agent and the gateways of Kubernetes. The gateways have no sampling
// processor, because it drops spans.
func agentAndGateways(binary string) func(*testing.T, string, *store, ports, [2]string) {
	return func(t *testing.T, key string, store *store, entry ports, metrics [2]string) {
		in, jobs := [2]string{freeAddress(t), freeAddress(t)}, [2]string{freeAddress(t), freeAddress(t)}
		for i := range in {
			startCollector(t, binary, nil, ready(t, "kubernetes/gateway"), fmt.Sprintf(`
extensions: {health_check: {endpoint: %s}}
receivers:
  otlp/traces: {protocols: {grpc: {endpoint: %s}}}
  otlp/jobs: {protocols: {grpc: {endpoint: %s}}}
connectors:
  gpu_metrics/operations: {flush_interval: 500ms}
exporters:
  load_balancing/stragglers: {resolver: %s}
  otlp_grpc/traces: {endpoint: %s}
  prometheus: {endpoint: %s, enable_open_metrics: true}
service:
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces/out: {processors: []}
    metrics: {exporters: [prometheus]}
`, freeAddress(t), in[i], jobs[i], static(jobs), store.address, metrics[i]))
		}
		startCollector(t, binary, append(entry.env, "OTELGPU_NODE_NAME=node"), ready(t, "kubernetes/agent"), device, faster,
			fmt.Sprintf(`
extensions: {health_check: {endpoint: %s}}
receivers:
  otlp: {protocols: {grpc: {endpoint: %s}, http: {endpoint: %s}}}
  gpu: {source: simulated, kubernetes: null}
exporters:
  load_balancing/traces: {routing_key: %s, resolver: %s}
  load_balancing/jobs: {resolver: %s}
  otlp_grpc/gateway: {endpoint: %s}
service:
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces: {processors: [memory_limiter, gpu_join, gpu_derive]}
    metrics: {receivers: [gpu_metrics/activity, gpu_requests], processors: [memory_limiter]}
`, freeAddress(t), entry.otlp, entry.http, key, static(in), static(jobs), in[0]))
	}
}

// joinBehindTheBalancer divides the spans first; each part is joined, with all samples of the
// device.
func joinBehindTheBalancer(binary string) func(*testing.T, string, *store, ports, [2]string) {
	return func(t *testing.T, key string, store *store, entry ports, metrics [2]string) {
		var in [2]string
		for i := range in {
			p := newPorts(t)
			in[i] = p.otlp
			startCollector(t, binary, append(p.env, "OTELGPU_JAEGER_ENDPOINT="+store.address, "OTELGPU_METRICS="+metrics[i]),
				ready(t, "jaeger"), device, faster)
		}
		startCollector(t, binary, nil, fmt.Sprintf(`
receivers:
  otlp: {protocols: {grpc: {endpoint: %s}}}
exporters:
  load_balancing: {routing_key: %s, resolver: %s, protocol: {otlp: {tls: {insecure: true}}}}
  otlp_grpc/0: {endpoint: %s, tls: {insecure: true}}
  otlp_grpc/1: {endpoint: %s, tls: {insecure: true}}
service:
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces: {receivers: [otlp], exporters: [load_balancing]}
    metrics: {receivers: [otlp], exporters: [otlp_grpc/0, otlp_grpc/1]}
`, entry.otlp, key, static(in), in[0], in[1]))
	}
}
