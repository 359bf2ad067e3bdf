// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/test/internal/program"
)

// refusing is a user's own pipeline: processors behind gpu_join that change spans, and an exporter
// with a queue that rejects what does not fit. Arguments: address, settle, the queue of gpu_join,
// the store's address, the exporter's queue, other exporters, extensions.
const refusing = `
extensions: {gpu_samples: {}%[7]s}
receivers:
  otlp: {protocols: {grpc: {endpoint: %[1]s}}}
  gpu: {source: simulated, samples: gpu_samples}
processors:
  gpu_join: {samples: gpu_samples, settle: %[2]s, max_wait: 20m, queue: {%[3]s}}
  gpu_derive: {samples: gpu_samples}
  resource: {attributes: [{key: service.instance.id, action: hash}]}
connectors: {gpu_metrics: {}}
exporters:
  otlp_grpc:
    endpoint: %[4]s
    tls: {insecure: true}
    sending_queue: {%[5]s}
    retry_on_failure: {initial_interval: 100ms, max_interval: 200ms, max_elapsed_time: 0s}
  debug: {}
service:
  extensions: [gpu_samples%[8]s]
  telemetry: {metrics: {level: none, readers: []}, logs: {sampling: {enabled: false}}}
  pipelines:
    traces: {receivers: [otlp], processors: [gpu_join, gpu_derive, resource], exporters: [otlp_grpc%[6]s]}
    metrics: {receivers: [gpu%[6]s], exporters: [debug]}
`

// perRequest is the number of spans in a request.
const perRequest = 20

// sendRequests sends n requests of spans that declare FLOPs, and returns when they are accepted.
func sendRequests(t *testing.T, address string, n int) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	for i := range n {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "trainer")
		rs.Resource().Attributes().PutStr("service.instance.id", "a")
		spans := rs.ScopeSpans().AppendEmpty().Spans()
		for j := range perRequest {
			s := spans.AppendEmpty()
			var id pcommon.SpanID
			binary.BigEndian.PutUint64(id[:], uint64(i*perRequest+j+1))
			s.SetTraceID(pcommon.TraceID{1})
			s.SetSpanID(id)
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-time.Millisecond)))
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
			s.Attributes().PutStr("gpu.operation.type", "section")
			s.Attributes().PutStr("hw.id", "GPU-51a0c0de-0000-4000-8000-000000000000")
			s.Attributes().PutDouble("gpu.duration", 0.001)
			s.Attributes().PutDouble("gpu.flop.count", 1e9)
		}
		_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(td))
		require.NoError(t, err)
	}
}

const (
	rejects = "the next component rejects spans"
	full    = "the storage of a queue cannot be written"
	noStore = "Exporting failed. Will retry"
)

// delivery is a case of the table in docs/operating.md.
type delivery struct {
	name, settle, join, queue, fanOut string
	storage                           string // settings of the exporter's file_storage; empty: no storage
	up                                bool   // the store is reachable from the start
	requests                          int
	until                             []string // log lines to wait for before each stop
	stops                             int      // before the store returns
	kill                              bool     // instead of SIGTERM
}

var deliveries = []delivery{
	{name: "store down", queue: "queue_size: 5", until: []string{rejects}, requests: 300},
	{name: "store down behind a fan-out", queue: "queue_size: 5", fanOut: ", gpu_metrics", until: []string{rejects}, requests: 300},
	{name: "SIGTERM", settle: "10m", up: true, requests: 1500}, // the queue has space for 1,000
	{name: "SIGTERM while the store is down", join: "shutdown_timeout: 2s", until: []string{noStore}, requests: 300, stops: 1},
	{
		name: "with storage: SIGTERM twice while the store is down", storage: "{}", queue: "queue_size: 5", fanOut: ", gpu_metrics",
		until: []string{rejects}, requests: 300, stops: 2,
	},
	{
		name: "with storage: full disk and two kills", storage: "max_size: 131072", fanOut: ", gpu_metrics",
		until: []string{full, rejects}, requests: 300, stops: 2, kill: true,
	},
}

func (d *delivery) config(t *testing.T, address, store string) string {
	settle, queue, exporter, ext, names := cmp.Or(d.settle, "10ms"), "", d.queue, "", ""
	if d.join != "" {
		settle += ", " + d.join
	}
	if d.storage != "" {
		queue, names = "storage: file_storage", ", file_storage, file_storage/exporters"
		exporter = strings.Trim("storage: file_storage/exporters, "+exporter, ", ")
		ext = fmt.Sprintf(`,
  file_storage: {directory: %[1]s/join, create_directory: true},
  file_storage/exporters: {directory: %[1]s/exporters, create_directory: true, %[2]s}`, t.TempDir(), strings.Trim(d.storage, "{}"))
	}
	return fmt.Sprintf(refusing, address, settle, queue, store, exporter, d.fanOut, ext, names)
}

// lost are the numbers of spans that gpu_join and an exporter log as lost.
var lost = regexp.MustCompile(`spans are lost: .*"spans": (\d+)|Dropping data.*"dropped_items": (\d+)`)

func lostSpans(output string) (n int) {
	for _, m := range lost.FindAllStringSubmatch(output, -1) {
		k, _ := strconv.Atoi(m[1] + m[2])
		n += k
	}
	return n
}

// documentedDeliveries returns the first five cells of each row in docs/operating.md.
func documentedDeliveries(t *testing.T) (rows []string) {
	doc, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(doc), "| case | accepted |")
	require.True(t, found)
	for line := range strings.Lines(table) {
		if line == "\n" {
			break
		}
		rows = append(rows, line)
	}
	return rows[2:]
}

// The store is away until the exporter's queue is full, or the Collector ends while spans wait:
// accepted spans arrive, what changes spans behind gpu_join did so once, and losses are logged.
func TestDeliveriesAreAsDocumented(t *testing.T) {
	documented := strings.Join(documentedDeliveries(t), "")
	assert.Equal(t, len(deliveries), strings.Count(documented, "\n"), "cases in docs/operating.md")
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	binary := buildCollector(t)
	for _, d := range deliveries {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s, address := newStore(t), freeAddress(t)
			config := d.config(t, address, s.address)
			start := func() *program.Program {
				p := runCollector(t, binary, nil, config)
				require.NoError(t, p.WaitFor("GPU source opened", time.Minute))
				return p
			}
			if d.up {
				s.open(t)
			}
			p := start()
			sendRequests(t, address, d.requests)
			accepted, missing := d.requests*perRequest, 0
			for n := range d.stops + 1 {
				for _, line := range d.until {
					if missing == 0 {
						require.NoError(t, p.WaitFor(line, time.Minute))
					}
				}
				if n == d.stops {
					break
				}
				if d.kill {
					require.NoError(t, p.Kill())
				} else {
					require.NoError(t, p.Stop(time.Minute))
				}
				if d.storage == "" {
					missing += lostSpans(p.Output())
				}
				p = start()
			}
			if !d.up {
				s.open(t)
				require.Eventually(t, func() bool { got, _ := s.count(); return got >= accepted-missing }, time.Minute,
					50*time.Millisecond)
			}
			require.NoError(t, p.Stop(time.Minute))
			arrived, again := s.count()
			repeated := fmt.Sprint(again)
			if d.kill { // gpu_join sends one request at a time
				assert.LessOrEqual(t, again, d.stops*perRequest)
				repeated = "at most 40"
			}
			row := fmt.Sprintf("| %s | %d | %d | %d | %s |", d.name, accepted, arrived, missing, repeated)
			t.Log(row, again)
			assert.Contains(t, documented, row, "in docs/operating.md")
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, v := range s.instances {
				assert.Equal(t, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", v, "the hash of a")
			}
		})
	}
}
