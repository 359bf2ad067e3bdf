// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package benchmarks

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The rate of the measurement over the network: requests of batchSize spans.
const (
	wireEvery = 64 * time.Millisecond // 8,000 spans each second
	wireWarm  = settle + 3*time.Second
	wireFor   = 8 * time.Second
)

const wireTarget = "OTELGPU_BENCH_TARGET" // set in the process with the service and the backend

// TestOtherEnds runs the peers of the measured pipeline in a separate process: a service that sends
// requests to the pipeline, and a backend that accepts its exports.
func TestOtherEnds(t *testing.T) {
	target := os.Getenv(wireTarget)
	if target == "" {
		t.Skip("runs as a child of TestCostOverTheNetwork")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(s, &backend{})
	go func() { _ = s.Serve(l) }()
	fmt.Println("backend", l.Addr())
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n') // the pipeline is ready
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	client := ptraceotlp.NewGRPCClient(conn)
	done := make(chan struct{})
	go func() { _, _ = in.ReadString('\n'); close(done) }()
	wire := requests(t)
	tick := time.NewTicker(wireEvery)
	for i := uint64(0); ; i++ {
		select {
		case <-done:
			return
		case now := <-tick.C:
			td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(wire)
			require.NoError(t, err)
			number(td, i, now.Add(-window))
			_, err = client.Export(context.Background(), ptraceotlp.NewExportRequestFromTraces(td))
			require.NoError(t, err)
		}
	}
}

type backend struct {
	ptraceotlp.UnimplementedGRPCServer
}

func (*backend) Export(context.Context, ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	return ptraceotlp.NewExportResponse(), nil
}

// networked returns the cost of a span in a pipeline between the otlp receiver and the otlp
// exporter, on the real clock.
func networked(t *testing.T, build stage) float64 {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	target := free.Addr().String()
	require.NoError(t, free.Close())
	child := exec.Command(os.Args[0], "-test.run", "^TestOtherEnds$", fmt.Sprintf("-cost-wide=%t", *costWide))
	child.Env = append(os.Environ(), wireTarget+"="+target)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() {
		_ = stdin.Close()
		_ = child.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)

	host := newSamplesHost(t)
	ctx := context.Background()
	ef, rf := otlpexporter.NewFactory(), otlpreceiver.NewFactory()
	ec, rc := ef.CreateDefaultConfig(), rf.CreateDefaultConfig()
	configure(t, ec, map[string]any{
		"endpoint": strings.TrimPrefix(strings.TrimSpace(line), "backend "),
		"tls":      map[string]any{"insecure": true},
	})
	configure(t, rc, map[string]any{"protocols": map[string]any{"grpc": map[string]any{"endpoint": target}}})
	exp, err := ef.CreateTraces(ctx, exportertest.NewNopSettings(ef.Type()), ec)
	require.NoError(t, err)
	require.NoError(t, exp.Start(ctx, host))
	t.Cleanup(func() { require.NoError(t, exp.Shutdown(ctx)) })
	var in, out atomic.Int64
	counted := func(n *atomic.Int64, next consumer.Traces) consumer.Traces {
		c, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			n.Add(int64(td.SpanCount()))
			return next.ConsumeTraces(ctx, td)
		}, consumer.WithCapabilities(consumer.Capabilities{MutatesData: true}))
		require.NoError(t, err)
		return c
	}
	rcv, err := rf.CreateTraces(ctx, receivertest.NewNopSettings(rf.Type()), rc,
		counted(&in, build(t, host, counted(&out, exp))))
	require.NoError(t, err)
	require.NoError(t, rcv.Start(ctx, host))
	defer func() { require.NoError(t, rcv.Shutdown(ctx)) }()
	_, err = fmt.Fprintln(stdin)
	require.NoError(t, err)

	sample := time.NewTicker(sampleRate)
	defer sample.Stop()
	run := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			host.writeUntil(<-sample.C)
		}
	}
	run(wireWarm)
	spans, left, cpu := in.Load(), out.Load(), processCPU(t)
	run(wireFor)
	spans, left, cpu = in.Load()-spans, out.Load()-left, processCPU(t)-cpu
	require.Positive(t, spans)
	require.InEpsilon(t, spans, left, 0.1, "as many spans must leave as come (is the machine busy?)")
	return float64(cpu) / float64(spans+left) * 2
}

func configure(tb testing.TB, cfg component.Config, conf map[string]any) {
	tb.Helper()
	require.NoError(tb, confmap.NewFromStringMap(conf).Unmarshal(cfg))
	require.NoError(tb, confmap.Validate(cfg))
}

// TestCostOverTheNetwork measures OTLP in to OTLP out with the Collector's own receiver and
// exporter, over gRPC on the loopback interface. The service and the backend are another process,
// whose time is excluded.
func TestCostOverTheNetwork(t *testing.T) {
	if *costRounds == 0 {
		t.Skip("measures only with -cost ROUNDS")
	}
	cases := chosen([]pipelineCase{
		{pass, pipeline()},
		{"gpu_derive+gpu_metrics", pipeline(deriveStage(full), metricsStage())},
		{all, pipeline(joinStage(full), deriveStage(full), metricsStage())},
		{all + " lean", pipeline(joinStage(lean), deriveStage(lean), metricsStage())},
		{"its puts alone lean", putStage(leanly, 7)},
		{"its queue and puts alone lean", pipeline(holdStage, buildStage(leanly, 7))},
		{"queue, reads and puts alone", floor()},
		{"transform+span_metrics", pipeline(transformStage(divisions), spanMetricsStage())},
	})
	best := map[string]float64{}
	for range *costRounds {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				if x := networked(t, c.build); best[c.name] == 0 || x < best[c.name] {
					best[c.name] = x
				}
			})
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "otlp receiver to otlp exporter, best of %d rounds, per span of %d attributes\n%-34s%9s%9s\n",
		*costRounds, attributesOf(t, requests(t)), "", "cpu ns", "× pass")
	for _, c := range cases {
		fmt.Fprintf(&b, "%-34s%9.0f%9.2f\n", c.name, best[c.name], best[c.name]/best[pass])
	}
	t.Log(b.String())
}

// Measures the size of a span on the network, uncompressed and with the exporter's default
// compression. Times, IDs and values are the same in each run.
func TestBytesOverTheNetwork(t *testing.T) {
	sent := func(build stage) (raw, compressed float64) {
		n := 0
		measure(t, requests(t), 1, build, func(_ context.Context, td ptrace.Traces) error {
			if n++; n != 10 { // one that was released in time, not at shutdown
				return nil
			}
			wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
			require.NoError(t, err)
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, err = z.Write(wire)
			require.NoError(t, err)
			require.NoError(t, z.Close())
			raw, compressed = float64(len(wire))/batchSize, float64(b.Len())/batchSize
			return nil
		})
		return raw, compressed
	}
	raw, compressed := sent(pipeline())
	leanRaw, leanCompressed := sent(pipeline(joinStage(lean), deriveStage(lean), metricsStage()))
	t.Logf("bytes per span: passing through %.0f, compressed %.1f; joined and derived, lean %.0f, compressed %.1f",
		raw, compressed, leanRaw, leanCompressed)
	require.Positive(t, compressed)
	require.Less(t, leanRaw-raw, 220.0)
	require.Less(t, leanCompressed-compressed, 33.0) // power changes from sample to sample, so energies have many digits
}
