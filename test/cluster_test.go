// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// fullBuild returns a build with the components for clusters, which takes minutes to build.
func fullBuild(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OTELGPU_FULL_BINARY"); path != "" {
		require.FileExists(t, path)
		return path
	}
	for _, name := range []string{"otelcol-gpu-full", "otelcol-gpu-cluster"} {
		path := filepath.Join("..", "cmd", "otelcol-gpu", "build", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("there is no build for clusters (make build-cluster or build-full; OTELGPU_FULL_BINARY names another)")
	return ""
}

func ready(t *testing.T, name string) string {
	t.Helper()
	text, err := config.YAML(name)
	require.NoError(t, err)
	return text
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	require.NoError(t, err)
	return address
}

// cluster has two agents, each with a device and a service that keeps it busy, two gateways and a
// store.
type cluster struct {
	t        *testing.T
	store    *store
	workers  [2]*worker
	gateways [2]*program.Program
	gateway  func(i int) *program.Program
	own      [2]string // addresses of the agents' own metrics
}

// work sends to both agents concurrently.
func (c *cluster) work(d time.Duration) {
	var both sync.WaitGroup
	for _, w := range c.workers {
		both.Go(func() { w.work(d) })
	}
	both.Wait()
}

// check waits for every accepted span and for a share of each request. It compares the energy on
// spans, and the energy of requests with the unassigned energy, with the energy of the devices.
func (c *cluster) check() {
	c.t.Helper()
	accepted, requests, joules := 0, 0, 0.0
	for _, w := range c.workers {
		accepted += w.accepted
		requests += w.gpu // each batch serves one
		joules += w.joules()
	}
	delivered := func() int {
		shares, _ := c.store.shares()
		spans, _ := c.store.count()
		return spans - shares
	}
	if !waitUntil(2*time.Minute, func() bool { n, _ := c.store.shares(); return delivered() >= accepted && n >= requests }) {
		n, _ := c.store.shares()
		c.t.Fatalf("%d of %d accepted spans and %d shares of %d requests have come", delivered(), accepted, n, requests)
	}
	_, again := c.store.count()
	require.Equal(c.t, accepted, delivered())
	require.InEpsilon(c.t, joules, c.store.energy(), 1e-9)
	shares, served := c.store.shares()
	require.Equal(c.t, requests, shares)
	unassigned := 0.0
	waitUntil(10*time.Second, func() bool {
		unassigned = 0
		for _, address := range c.own {
			unassigned += scrape(c.t, address, "otelcol_connector_gpu_requests_unassigned_energy", "")
		}
		return served+unassigned > joules*(1-1e-9)
	})
	require.InEpsilon(c.t, servedShare*joules, served, 1e-9)
	require.InEpsilon(c.t, joules, served+unassigned, 1e-9)
	c.t.Logf("%d spans accepted, %d delivered, %d spans more than once; %.1f J on them of %.1f J; %d requests have %.1f J, "+
		"%.1f J serve none", accepted, delivered(), again, c.store.energy(), joules, shares, served, unassigned)
}

// growing returns a request of n spans of other programs that agents accept, and that is larger
// than 4 MiB when they send it: pdata encodes the parents and statuses that these spans omit.
func growing(n int) []byte {
	field := func(number int, b []byte) []byte {
		return append(binary.AppendUvarint([]byte{byte(number<<3 | 2)}, uint64(len(b))), b...)
	}
	var spans []byte
	for i := range n {
		id := binary.BigEndian.AppendUint64(nil, 0xcc<<56|uint64(i))
		span := slices.Concat(field(1, append(id, id...)), field(2, id), field(5, []byte(strings.Repeat("x", 36))))
		spans = append(spans, field(2, span)...)
	}
	return field(1, field(2, spans))
}

func waitUntil(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}

func newCluster(t *testing.T, agents [2]ports) *cluster {
	c := &cluster{t: t, store: newStore(t)}
	c.store.open(t)
	for i, p := range agents {
		c.workers[i] = newWorker(t, p.otlp)
		c.workers[i].next = uint64(i) << 32
		c.own[i] = p.telemetry
	}
	c.workers[0].front, c.workers[1].front = c.workers[1], c.workers[0] // requests and their batches are on different agents
	return c
}

// requestsSoon overrides the agents' pipelines, so that usage records close during the test.
const requestsSoon = `
connectors: {gpu_requests: {settle: 500ms, idle: 1s}}
`

// static returns a resolver of two gateways for the exporter load_balancing, instead of DNS.
func static(addresses [2]string) string {
	return fmt.Sprintf("{dns: null, static: {hostnames: [%q, %q]}}", addresses[0], addresses[1])
}

// Agents send directly to gateways, with the pipelines of Kubernetes. The gateways have no sampling
// processor, because it drops spans.
func TestIntegrationGatewaysMayBeKilled(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	binary := fullBuild(t)
	var in, jobs [2]string
	for i := range in {
		in[i], jobs[i] = freeAddress(t), freeAddress(t)
	}
	agents := [2]ports{newPorts(t), newPorts(t)}
	var c *cluster
	for i, p := range agents {
		host, port, err := net.SplitHostPort(p.telemetry)
		require.NoError(t, err)
		startCollector(t, binary, append(p.env, "OTELGPU_NODE_NAME=node"), ready(t, "kubernetes/agent"), device, faster,
			requestsSoon, fmt.Sprintf(`
extensions: {health_check: {endpoint: %s}}
receivers:
  otlp: {protocols: {grpc: {endpoint: %s}, http: {endpoint: %s}}}
  gpu: {source: simulated, kubernetes: null}
exporters:
  load_balancing/traces: {resolver: %s, retry_on_failure: {initial_interval: 100ms, max_interval: 1s}}
  load_balancing/jobs: {resolver: %s}
  otlp_grpc/gateway: {endpoint: %s}
service:
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}}
  pipelines:
    traces: {processors: [memory_limiter, gpu_join, gpu_derive]}
    metrics: {processors: [memory_limiter]}
`, freeAddress(t), p.otlp, p.http, static(in), static(jobs), in[i], host, port))
	}
	c = newCluster(t, agents)
	c.gateway = func(i int) *program.Program {
		return runCollector(t, binary, nil, ready(t, "kubernetes/gateway"), fmt.Sprintf(`
extensions: {health_check: {endpoint: %s}}
receivers:
  otlp/traces: {protocols: {grpc: {endpoint: %s}}}
  otlp/jobs: {protocols: {grpc: {endpoint: %s}}}
exporters:
  load_balancing/stragglers: {resolver: %s}
  otlp_grpc/traces: {endpoint: %s, sending_queue: {enabled: false}, retry_on_failure: {max_elapsed_time: 0s}}
service:
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces/out: {processors: []}
    metrics: {exporters: [debug]}
`, freeAddress(t), in[i], jobs[i], static(in), c.store.address))
	}
	for i := range c.gateways {
		c.gateways[i] = c.gateway(i)
	}
	c.work(3 * time.Second)
	require.Equal(t, http.StatusOK, post(t, agents[0].http, "traces", "x-protobuf", growing(60_000), false))
	c.workers[0].accepted += 60_000
	require.NoError(t, c.gateways[0].Kill())
	c.work(3 * time.Second)
	c.gateways[0] = c.gateway(0)
	c.work(2 * time.Second)
	c.check()
	for _, g := range c.gateways {
		require.NoError(t, g.Stop(time.Minute))
	}
}

// Tests the Kafka pipelines with a real broker, which is restarted, and gateways, one of which is
// killed. OTELGPU_KAFKA_CLASSPATH names a folder with the jars of org.apache.kafka:kafka_2.13 and
// their dependencies (mvn dependency:copy-dependencies).
func TestIntegrationNothingIsLostThroughKafka(t *testing.T) {
	integration.Need(t)
	binary := fullBuild(t)
	broker := startBroker(t)
	agents := [2]ports{newPorts(t), newPorts(t)}
	for _, p := range agents {
		startCollector(t, binary, append(p.env, "OTELGPU_KAFKA="+broker.address), ready(t, "kafka/agent"), device, faster,
			requestsSoon)
	}
	c := newCluster(t, agents)
	c.gateway = func(int) *program.Program {
		return runCollector(t, binary, append(newPorts(t).env, "OTELGPU_KAFKA="+broker.address,
			"OTELGPU_TRACES_ENDPOINT="+c.store.address), ready(t, "kafka/gateway"))
	}
	c.work(2 * time.Second) // creates the topic
	require.True(t, waitUntil(time.Minute, func() bool {
		parts, _ := filepath.Glob(filepath.Join(broker.dir, "data", "otelgpu_spans-*"))
		return len(parts) == 4
	}), "the topic is not made: %s", broker.running.Output())
	for i := range c.gateways {
		c.gateways[i] = c.gateway(i)
	}
	c.work(3 * time.Second)
	require.NoError(t, c.gateways[0].Kill())
	c.work(3 * time.Second)
	require.NoError(t, broker.running.Kill())
	c.work(3 * time.Second)
	broker.start()
	c.gateways[0] = c.gateway(0)
	c.work(3 * time.Second)
	c.check()
	for _, g := range c.gateways {
		require.NoError(t, g.Stop(time.Minute))
	}
}

// broker is one node of Kafka without ZooKeeper.
type broker struct {
	t             *testing.T
	java, jars    string
	dir, settings string
	address       string
	running       *program.Program
}

// startBroker starts a broker, or skips the test if none is installed.
func startBroker(t *testing.T) *broker {
	t.Helper()
	jars := os.Getenv("OTELGPU_KAFKA_CLASSPATH")
	java, err := exec.LookPath("java")
	if jars == "" || err != nil {
		t.Skip("no broker: OTELGPU_KAFKA_CLASSPATH names no folder of jars, or there is no java")
	}
	b := &broker{t: t, java: java, jars: filepath.Join(jars, "*"), dir: t.TempDir(), address: freeAddress(t)}
	b.settings = filepath.Join(b.dir, "server.properties")
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.settings, fmt.Appendf(nil, `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[1]s
listeners=PLAINTEXT://%[2]s,CONTROLLER://127.0.0.1:%[1]s
advertised.listeners=PLAINTEXT://%[2]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%[3]s
num.partitions=4
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
`, port, b.address, filepath.Join(b.dir, "data")), 0o600))
	out, err := exec.CommandContext(t.Context(), java, "-cp", b.jars, "kafka.tools.StorageTool", "format", "-t",
		"4L6g3nShT-eMCtK--X86sw", "-c", b.settings).CombinedOutput()
	require.NoError(t, err, string(out))
	b.start()
	return b
}

func (b *broker) start() {
	b.t.Helper()
	p, err := program.Start(context.WithoutCancel(b.t.Context()), b.java,
		[]string{"-Xmx512m", "-cp", b.jars, "kafka.Kafka", b.settings}, nil)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = p.Kill() })
	require.True(b.t, waitUntil(2*time.Minute, func() bool {
		conn, err := net.Dial("tcp", b.address)
		return err == nil && conn.Close() == nil
	}), "the broker does not listen: %s", p.Output())
	b.running = p
}

// A broker accepts messages of 1 MB. The spans of a trace in one request may exceed it, and are
// sent in pieces.
func TestIntegrationLargeTraceGoesThroughKafka(t *testing.T) {
	integration.Need(t)
	binary := fullBuild(t)
	broker := startBroker(t)
	store, agent := newStore(t), newPorts(t)
	store.open(t)
	kafka := "OTELGPU_KAFKA=" + broker.address
	startCollector(t, binary, append(agent.env, kafka), ready(t, "kafka/agent"), faster)
	startCollector(t, binary, append(newPorts(t).env, kafka, "OTELGPU_TRACES_ENDPOINT="+store.address),
		ready(t, "kafka/gateway"))
	conn, err := grpc.NewClient(agent.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	const n = 3000
	td := fat(0, n)
	for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		s.SetTraceID(pcommon.TraceID{7})
		s.Attributes().PutStr("prompt", strings.Repeat(s.SpanID().String(), 62)) // so that it is not compressed to nothing
	}
	require.NoError(t, (&worker{t: t, conn: conn}).send(td))
	waitUntil(time.Minute, func() bool { spans, _ := store.count(); return spans >= n })
	spans, _ := store.count()
	require.Equal(t, n, spans)
}
