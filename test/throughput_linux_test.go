// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/cputime"
)

// The ready pipeline, unchanged, accepts a rate of GPU spans. Without the environment variables the
// rate is small. OTELGPU_THROUGHPUT=100000 is the rate per second, OTELGPU_THROUGHPUT_TIME=10m the
// duration and OTELGPU_THROUGHPUT_SETTLE=30s another settle delay: on a machine that is too slow
// for the rate, a longer delay keeps as many spans pending. It logs the values of the table in
// docs/operating.md. OTELGPU_THROUGHPUT_PROFILE=FILE writes the profile from which releases are
// compiled.
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
	binary, profiled := buildCollector(t), freeAddress(t)
	if os.Getenv("OTELGPU_THROUGHPUT_PROFILE") != "" {
		overlay += "extensions: {pprof: {endpoint: " + profiled + "}}\n" +
			"service: {extensions: [gpu_samples, host_check, health_check, pprof]}\n"
	}
	collector := runCollector(t, binary, p.env, text, overlay)
	conn, err := grpc.NewClient(p.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()

	const perRequest, senders = 512, 4
	var accepted, refused atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	cpu, own := processSeconds(t, collector.PID()), cputime.Used()
	for i := range senders {
		all.Go(func() {
			r, rnd := newEncodedRequest(t, gpuRequest(perRequest)), rand.New(rand.NewPCG(uint64(i), 1))
			every := time.Duration(float64(time.Second) * perRequest * senders / float64(rate))
			for n := 0; time.Since(start) < lasts; n++ {
				time.Sleep(time.Until(start.Add(time.Duration(n) * every)))
				r.renumber(rnd, time.Now())
				if err := r.export(conn); err != nil {
					refused.Add(perRequest)
				} else {
					accepted.Add(perRequest)
				}
			}
		})
	}
	if name := os.Getenv("OTELGPU_THROUGHPUT_PROFILE"); name != "" {
		all.Go(func() { writeProfile(t, name, profiled, lasts/2) })
	}
	all.Wait()
	took := time.Since(start)
	seconds, sent := processSeconds(t, collector.PID())-cpu, (cputime.Used() - own).Seconds()
	t.Logf("%.0f spans/s sent in %s: %d accepted, %d refused; the Collector used %.2f cores (%.1f µs per span) and the "+
		"sender %.2f; %d MiB resident at most", float64(accepted.Load())/took.Seconds(), took.Round(time.Second),
		accepted.Load(), refused.Load(), seconds/took.Seconds(), 1e6*seconds/float64(accepted.Load()), sent/took.Seconds(),
		peakResident(t, collector.PID())>>20)
	require.Zero(t, refused.Load(), "of %d accepted", accepted.Load())
	counted := waitUntil(settle+2*time.Minute, func() bool {
		time.Sleep(time.Second)
		return scrape(t, p.metrics, "gpu_operation_count_total", "") == float64(accepted.Load())
	})
	require.True(t, counted, "%v of %d spans are counted", scrape(t, p.metrics, "gpu_operation_count_total", ""),
		accepted.Load())
	require.NoError(t, collector.Stop(time.Minute))
}

// writeProfile writes a CPU profile of the second half of a run, without paths of this machine.
func writeProfile(t *testing.T, name, address string, half time.Duration) {
	time.Sleep(half)
	r, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, int(half.Seconds())))
	if !assert.NoError(t, err) {
		return
	}
	defer r.Body.Close()
	p, err := profile.Parse(r.Body)
	if !assert.NoError(t, err) {
		return
	}
	for _, f := range p.Function {
		f.Filename = path.Base(f.Filename) // the compiler reads names of functions and lines only
	}
	for _, m := range p.Mapping {
		m.File, m.BuildID = "otelcol-gpu", ""
	}
	var b bytes.Buffer
	assert.NoError(t, p.Write(&b))
	assert.NoError(t, os.WriteFile(name, b.Bytes(), 0o644))
}

// gpuRequest returns a request of spans with 13 attributes on eight simulated devices, as sent by
// gpuspan.
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

// encodedRequest is a request as OTLP protobuf, of which only IDs and times change, so that the
// sender takes little of the processor.
type encodedRequest struct {
	wire  []byte
	spans []struct{ trace, id, start, end int } // offsets in wire
}

// newEncodedRequest encodes a request. It finds the fields by values that occur nowhere else.
func newEncodedRequest(t *testing.T, td ptrace.Traces) *encodedRequest {
	r := &encodedRequest{}
	mark := func(span, field int) (m [16]byte) {
		binary.LittleEndian.PutUint64(m[:], 0xa5c3_96f0_0000_0000|uint64(span)<<8|uint64(field))
		binary.LittleEndian.PutUint64(m[8:], 0x5a3c_690f_0000_0000|uint64(span)<<8|uint64(field))
		return m
	}
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for i, s := range spans.All() {
		id, start, end := mark(i, 1), mark(i, 2), mark(i, 3)
		s.SetTraceID(mark(i, 0))
		s.SetSpanID(pcommon.SpanID(id[:8]))
		s.SetStartTimestamp(pcommon.Timestamp(binary.LittleEndian.Uint64(start[:])))
		s.SetEndTimestamp(pcommon.Timestamp(binary.LittleEndian.Uint64(end[:])))
	}
	var err error
	r.wire, err = ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	require.NoError(t, err)
	r.spans = slices.Grow(r.spans, spans.Len())
	for i := range spans.Len() {
		var at [4]int
		for field, length := range [...]int{16, 8, 8, 8} {
			m := mark(i, field)
			require.Equal(t, 1, bytes.Count(r.wire, m[:length]))
			at[field] = bytes.Index(r.wire, m[:length])
		}
		r.spans = append(r.spans, struct{ trace, id, start, end int }{at[0], at[1], at[2], at[3]})
	}
	return r
}

// renumber gives the spans new IDs and the time up to now.
func (r *encodedRequest) renumber(rnd *rand.Rand, now time.Time) {
	var high, low uint64
	for i, s := range r.spans {
		if i%16 == 0 {
			high, low = rnd.Uint64(), rnd.Uint64()|1
		}
		binary.LittleEndian.PutUint64(r.wire[s.trace:], high)
		binary.LittleEndian.PutUint64(r.wire[s.trace+8:], low)
		binary.LittleEndian.PutUint64(r.wire[s.id:], rnd.Uint64()|1)
		end := now.Add(time.Duration(i-len(r.spans)) * 50 * time.Microsecond).UnixNano()
		binary.LittleEndian.PutUint64(r.wire[s.start:], uint64(end-time.Millisecond.Nanoseconds()))
		binary.LittleEndian.PutUint64(r.wire[s.end:], uint64(end))
	}
}

func (r *encodedRequest) export(conn *grpc.ClientConn) error {
	var answer []byte
	return conn.Invoke(context.Background(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export", &r.wire,
		&answer, grpc.ForceCodecV2(encoded{}))
}

// encoded is the codec of messages that are encoded already.
type encoded struct{}

func (encoded) Name() string { return "proto" }

func (encoded) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (encoded) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
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
