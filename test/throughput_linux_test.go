// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/test/internal/otelcol"
)

// The ready pipeline, unchanged, accepts a rate of GPU spans. Without the environment variables the rate is small.
// OTELGPU_THROUGHPUT=100000 is the rate per second, OTELGPU_THROUGHPUT_TIME=10m the duration and
// OTELGPU_THROUGHPUT_SETTLE=30s another settle delay: on a machine that is too slow for the rate, a longer delay keeps
// as many spans pending. It logs the values of the table in docs/operating.md.
func TestThroughputOfTheReadyPipeline(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	number := func(name string, def int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(def)))
		require.NoError(t, err, name)
		return n
	}
	length := func(name, def string) time.Duration {
		d, err := time.ParseDuration(cmp.Or(os.Getenv(name), def))
		require.NoError(t, err, name)
		return d
	}
	rate := number("OTELGPU_THROUGHPUT", 2000)
	lasts, settle := length("OTELGPU_THROUGHPUT_TIME", "2s"), length("OTELGPU_THROUGHPUT_SETTLE", "6s")
	text, err := config.YAML(config.AllInOne)
	require.NoError(t, err)
	p := newPorts(t)
	overlay := "receivers: {gpu: {simulated: {devices: 8}}}\n"
	if settle != 6*time.Second {
		overlay += fmt.Sprintf("processors: {gpu_join: {settle: %s, max_wait: %s}}\n", settle, settle+4*time.Second)
	}
	binary := otelcol.Build(t)
	collector := otelcol.Run(t, binary, p.env, text, overlay)
	conn, err := grpc.NewClient(p.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()

	const perRequest, senders = 512, 4
	var accepted, refused atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	cpu := processSeconds(t, collector.PID())
	for i := range senders {
		all.Go(func() {
			td, rnd := gpuRequest(perRequest), rand.New(rand.NewPCG(uint64(i), 1))
			every := time.Duration(float64(time.Second) * perRequest * senders / float64(rate))
			for n := 0; time.Since(start) < lasts; n++ {
				time.Sleep(time.Until(start.Add(time.Duration(n) * every)))
				renumber(td, rnd, time.Now())
				_, err := ptraceotlp.NewGRPCClient(conn).Export(context.Background(),
					ptraceotlp.NewExportRequestFromTraces(td))
				if err != nil {
					refused.Add(perRequest)
				} else {
					accepted.Add(perRequest)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	require.Zero(t, refused.Load(), "of %d accepted", accepted.Load())
	seconds := processSeconds(t, collector.PID()) - cpu
	counted := waitUntil(settle+2*time.Minute, func() bool {
		time.Sleep(time.Second)
		return scrape(t, p.metrics, "gpu_operation_count_total", "") == float64(accepted.Load())
	})
	t.Logf("%.0f spans/s sent in %s: %d accepted, %d refused; %.1f µs of CPU per span while they were sent, "+
		"%d MiB resident at most", float64(accepted.Load())/took.Seconds(), took.Round(time.Second), accepted.Load(),
		refused.Load(), 1e6*seconds/float64(accepted.Load()), peakResident(t, collector.PID())>>20)
	require.True(t, counted, "%v of %d spans are counted", scrape(t, p.metrics, "gpu_operation_count_total", ""),
		accepted.Load())
	require.NoError(t, collector.Stop(time.Minute))
}

// gpuRequest returns a request of spans with 13 attributes on eight simulated devices, as sent by gpuspan.
func gpuRequest(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "load")
	rs.Resource().Attributes().PutStr("service.instance.id", "1")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("github.com/otelgpu/otelgpu/gpuspan")
	ss.Scope().Attributes().PutStr("gpu.timing.source", "cuda_event")
	for i := range n {
		s := ss.Spans().AppendEmpty()
		s.SetName([]string{"decode", "prefill", "attention", "copy"}[i%4])
		a := s.Attributes()
		a.PutStr("gpu.operation.type", "section")
		a.PutStr("gpu.operation.category", "compute")
		a.PutStr("gpu.operation.item.type", "token")
		a.PutStr("hw.id", fmt.Sprintf("GPU-51a0c0de-0000-4000-8000-%06x%06x", 0, i%8))
		a.PutInt("gpu.stream.id", int64(i%3))
		a.PutDouble("gpu.duration", 1e-3)
		a.PutDouble("gpu.end.delay", 1e-6*float64(i))
		a.PutDouble("gpu.host.duration", 1e-5)
		a.PutInt("gpu.io.read.size", int64(i)<<10)
		a.PutInt("gpu.io.write.size", int64(i)<<8)
		a.PutDouble("gpu.flop.count", 1e9*float64(i))
		a.PutStr("gpu.flop.precision", "bf16")
		a.PutInt("gpu.operation.items", int64(1+i%32))
	}
	return td
}

// renumber gives the spans of a request new IDs and times up to now.
func renumber(td ptrace.Traces, rnd *rand.Rand, now time.Time) {
	var trace pcommon.TraceID
	for i, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		if i%16 == 0 {
			for k := range trace {
				trace[k] = byte(rnd.Uint32())
			}
		}
		s.SetTraceID(trace)
		var id pcommon.SpanID
		for k := range id {
			id[k] = byte(rnd.Uint32())
		}
		s.SetSpanID(id)
		end := now.Add(time.Duration(i-512) * 50 * time.Microsecond)
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-time.Millisecond)))
	}
}

// processSeconds returns the CPU time of a process, user and system.
func processSeconds(t *testing.T, pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		require.NoError(t, err)
		ticks += n
	}
	return float64(ticks) / 100
}

// peakResident returns the peak resident memory of a process in bytes.
func peakResident(t *testing.T, pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
