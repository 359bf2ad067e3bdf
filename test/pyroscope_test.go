// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/internal/stackprofile"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// startPyroscope starts Pyroscope on addresses of this host only, and returns the address that
// accepts OTLP and queries.
func startPyroscope(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("OTELGPU_PYROSCOPE"), "pyroscope"))
	if err != nil {
		t.Skip("no Pyroscope: it is neither in the path, nor does OTELGPU_PYROSCOPE name it")
	}
	address, grpc, raft, gossip := freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t)
	dir := t.TempDir()
	args := []string{
		"-target=all", "-architecture.storage=v2", "-usage-stats.enabled=false", "-self-profiling.disable-push=true",
		"-server.http-listen-address=127.0.0.1", "-server.http-listen-port=" + portOf(address),
		"-server.grpc-listen-address=127.0.0.1", "-server.grpc-listen-port=" + portOf(grpc),
		"-memberlist.bind-addr=127.0.0.1", "-memberlist.advertise-addr=127.0.0.1", "-memberlist.bind-port=" + portOf(gossip),
		"-metastore.address=" + grpc, "-query-backend.address=" + grpc, "-metastore.raft.server-id=" + raft,
		"-metastore.raft.bind-address=" + raft, "-metastore.raft.advertise-address=" + raft,
		"-metastore.raft.dir=" + filepath.Join(dir, "raft"), "-metastore.raft.snapshots-dir=" + filepath.Join(dir, "raft"),
		"-metastore.data-dir=" + filepath.Join(dir, "metastore"), "-compaction-worker.temp-dir=" + dir,
		"-storage.backend=filesystem", "-storage.filesystem.dir=" + filepath.Join(dir, "blocks"),
		"-segment-writer.lifecycler.addr=127.0.0.1", "-query-frontend.instance-addr=127.0.0.1",
		"-segment-writer.min-ready-duration=0s", "-metastore.min-ready-duration=0s", "-segment-writer.store=inmemory",
	}
	for _, ring := range []string{"distributor", "overrides-exporter", "query-scheduler"} {
		args = append(args, "-"+ring+".ring.store=inmemory", "-"+ring+".ring.instance-addr=127.0.0.1")
	}
	pyroscope, err := program.Start(t.Context(), path, args, nil)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, text := body("http://" + address + "/ready")
		assert.Equal(c, http.StatusOK, status, "%s\n%s", text, pyroscope.Output())
	}, 2*time.Minute, time.Second)
	return address
}

func portOf(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return port
}

// Pyroscope has the same values for the demo as the page of the sending Collector, for every
// service, type of value and stack. It finds the profile of a span through the link.
func TestIntegrationPyroscopeHasTheStacksOfTheDemo(t *testing.T) {
	integration.Need(t)
	store := startPyroscope(t)
	begin := time.Now()
	otlp, page := freeAddress(t), freeAddress(t)
	collector, err := program.Start(t.Context(), buildCollector(t),
		[]string{"--config", "profiles", "--feature-gates", "service.profilesSupport"}, []string{
			"OTELGPU_PROFILES_ENDPOINT=" + store, "OTELGPU_OTLP_GRPC=" + otlp, "OTELGPU_OTLP_HTTP=" + freeAddress(t),
			"OTELGPU_PAGE=" + page, "OTELGPU_HEALTH=" + freeAddress(t), "OTELGPU_SOURCE=simulated",
			"OTELGPU_TELEMETRY_PORT=" + portOf(freeAddress(t)), "OTELGPU_LOG_LEVEL=info",
		})
	require.NoError(t, err)
	require.NoError(t, collector.WaitFor("Everything is ready", time.Minute))
	demo, err := program.Start(t.Context(), buildCollector(t), []string{
		"demo", "--duration", "10s", "--out", t.TempDir(), "--otlp", otlp,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, demo.Wait(2*time.Minute), demo.Output())

	// The page settles later than the connector: once its total no longer changes, both have
	// everything.
	type series struct{ service, kind string }
	var ours map[series]map[string]int64
	var slow *profile.Sample // sample of the single long prefill
	var last int64
	require.Eventually(t, func() bool {
		time.Sleep(4 * time.Second)
		_, b := body("http://" + page + "/pprof")
		p, err := profile.ParseData(b)
		require.NoError(t, err)
		ours = map[series]map[string]int64{}
		var sum int64
		for _, s := range p.Sample {
			var stack []string
			for _, l := range slices.Backward(s.Location) {
				stack = append(stack, l.Line[0].Function.Name)
			}
			for i, v := range s.Value {
				k := series{stack[0], p.SampleType[i].Type}
				if ours[k] == nil {
					ours[k] = map[string]int64{}
				}
				if v != 0 {
					ours[k][strings.Join(stack, ";")] += v
				}
				sum += v
			}
			if stack[len(stack)-1] == "prefill.long" {
				slow = s
			}
		}
		unchanged := sum == last && sum > 0
		last = sum
		return unchanged
	}, 3*time.Minute, time.Millisecond)
	require.NoError(t, collector.Stop(time.Minute), "it sends the last window when it stops")

	db := pyroscope{t, store, begin.Add(-5 * time.Minute)}
	require.Len(t, ours, 6, "two services, three types")
	for k, want := range ours {
		in := map[string]any{"profileTypeID": pyroscopeID(k.kind), "labelSelector": fmt.Sprintf(`{service_name=%q}`, k.service)}
		var got pprofJSON
		db.query("SelectMergeProfile", in, &got)
		var sum, theirSum int64
		theirs := got.stacks()
		for stack, v := range want { // each profile of a window rounds its sum once
			assert.InDelta(t, v, theirs[stack], 2, "%v %s", k, stack)
			sum, theirSum = sum+v, theirSum+theirs[stack]
		}
		assert.Len(t, theirs, len(want), k)
		assert.Equal(t, theirSum, db.total(in), "flame graph of %v", k)
		t.Logf("%s %s: %d stacks; page %d, Pyroscope %d", k.service, k.kind, len(theirs), sum, theirSum)
	}

	require.NotNil(t, slow)
	for _, by := range []map[string]any{
		{"spanSelector": slow.Label["span_id"]}, {"traceIdSelector": slow.Label["trace_id"]},
	} {
		by["profileTypeID"], by["labelSelector"] = pyroscopeID("gpu_time"), "{}"
		got, all := db.total(by), db.total(map[string]any{"profileTypeID": pyroscopeID("gpu_time"), "labelSelector": "{}"})
		assert.GreaterOrEqual(t, got, slow.Value[0], by)
		assert.Less(t, got, all, by)
	}
	// The older API, which scripts use.
	status, text := body("http://" + store + "/pyroscope/render?format=json&from=now-30m&query=" +
		url.QueryEscape(pyroscopeID("gpu_energy")+"{}"))
	assert.Equal(t, http.StatusOK, status, string(text))
	assert.Contains(t, string(text), "prefill.long")
}

// pyroscope queries a running Pyroscope, from a time to five minutes after now.
type pyroscope struct {
	t       *testing.T
	address string
	start   time.Time
}

func (p *pyroscope) query(method string, in map[string]any, out any) {
	p.t.Helper()
	in["start"], in["end"] = p.start.UnixMilli(), time.Now().Add(5*time.Minute).UnixMilli()
	in["maxNodes"] = 100_000
	b, err := json.Marshal(in)
	require.NoError(p.t, err)
	resp, err := http.Post("http://"+p.address+"/querier.v1.QuerierService/"+method, "application/json", bytes.NewReader(b))
	require.NoError(p.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, resp.StatusCode, "%s: %s", method, text)
	require.NoError(p.t, json.Unmarshal(text, out), string(text))
}

func (p *pyroscope) total(in map[string]any) int64 {
	p.t.Helper()
	var got struct {
		Flamegraph struct {
			Total int64 `json:",string"`
		}
	}
	p.query("SelectMergeStacktraces", in, &got)
	return got.Flamegraph.Total
}

// From the exemplar of a panel to the trace, from there to the flame graph, and from that back to
// the span: the walk of docs/flamegraphs.md with its configuration, and with the queries that
// Grafana sends.
func TestIntegrationWalkFromAMetricToTheFlameGraphAndBack(t *testing.T) {
	integration.Need(t)
	db := pyroscope{t, startPyroscope(t), time.Now().Add(-5 * time.Minute)}
	metrics := runPrometheus(t, buildPrometheus(t), filepath.Join("..", "deploy", "prometheus", "prometheus.yml"))
	traces := newStore(t)
	traces.open(t)
	ports, dir, out := newPorts(t), t.TempDir(), t.TempDir()
	doc, err := os.ReadFile(filepath.Join("..", "docs", "flamegraphs.md"))
	require.NoError(t, err)
	_, added, _ := strings.Cut(string(doc), "```yaml\n# added to the ready pipeline tempo\n")
	added, _, _ = strings.Cut(added, "```")
	require.Contains(t, added, "pyroscope.example:4040")
	args := []string{"--config", "tempo", "--feature-gates", "service.profilesSupport"}
	for name, text := range map[string]string{
		"flames": strings.ReplaceAll(added, "pyroscope.example:4040", db.address), "sooner": faster,
	} {
		file := filepath.Join(dir, name+".yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		args = append(args, "--config", file)
	}
	collector, err := program.Start(t.Context(), buildCollector(t), args,
		append(ports.env, "OTELGPU_TEMPO_ENDPOINT="+traces.address, "OTELGPU_LOG_LEVEL=info"))
	require.NoError(t, err)
	require.NoError(t, collector.WaitFor("Everything is ready", time.Minute))
	metrics.scrape("otelgpu", ports.metrics)
	demo, err := program.Start(t.Context(), buildCollector(t), []string{
		"demo", "--duration", "10s", "--files", "--out", out, "--otlp", ports.otlp,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, demo.Wait(2*time.Minute), demo.Output())
	conn, err := grpc.NewClient(ports.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	for line := range lines(t, filepath.Join(out, "metrics.json")) { // of the services, which demo writes to files only
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		require.NoError(t, err)
		_, err = pmetricotlp.NewGRPCClient(conn).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(md))
		require.NoError(t, err)
	}

	// The exemplar of the slow operation, in the series of the panel.
	const operation, series = "prefill.long", "gpu_operation_duration_seconds_bucket"
	panels := dashboards(t)["services"].Panels
	panel := slices.IndexFunc(panels, func(p panel) bool { return p.Title == "Duration of an operation" })
	require.GreaterOrEqual(t, panel, 0)
	require.Contains(t, panels[panel].Targets[0].Expr, series)
	require.True(t, panels[panel].Targets[0].Exemplar)
	var found []struct {
		Labels    map[string]string
		Exemplars []struct{ Labels map[string]string }
	}
	require.Eventually(t, func() bool {
		metrics.get("/exemplars?match="+url.QueryEscape(series+`{gpu_operation_name="`+operation+`"}`), &found)
		return len(found) > 0
	}, time.Minute, time.Second)
	service, link := found[0].Labels["job"], found[0].Exemplars[0].Labels
	traceID, spanID := link["trace_id"], link["span_id"] // the data source names the former

	// It is in the trace store.
	inStore := func(traceID, spanID string) (name string) {
		traces.mu.Lock()
		defer traces.mu.Unlock()
		for id, s := range traces.spans {
			if id.String() == spanID && (traceID == "" || s.TraceID().String() == traceID) {
				return s.Name()
			}
		}
		return ""
	}
	require.Equal(t, operation, inStore(traceID, spanID))

	// The flame graph of the service has the operation, and the trace has a part of it.
	require.NoError(t, collector.Stop(time.Minute), "it sends the last window when it stops")
	of := func(more ...any) map[string]any {
		in := map[string]any{"profileTypeID": pyroscopeID("gpu_time"), "labelSelector": fmt.Sprintf(`{service_name=%q}`, service)}
		for i := 0; i < len(more); i += 2 {
			in[more[i].(string)] = more[i+1]
		}
		return in
	}
	var graph struct{ Flamegraph struct{ Names []string } }
	db.query("SelectMergeStacktraces", of(), &graph)
	require.Contains(t, graph.Flamegraph.Names, operation)
	part := db.total(of("traceIdSelector", []string{traceID}))
	require.Positive(t, part)
	require.Less(t, part, db.total(of()))
	require.Positive(t, db.total(of("spanSelector", []string{spanID})))

	// Some spans to which stacks link, as many as Pyroscope returns, lead back to traces.
	var heat struct {
		Series []struct {
			Slots []struct{ Exemplars []struct{ SpanID string } }
		}
	}
	db.query("SelectHeatmap", of("queryType", "HEATMAP_QUERY_TYPE_SPAN", "exemplarType", "EXEMPLAR_TYPE_SPAN", "step", 15), &heat)
	back := map[string]string{}
	for _, s := range heat.Series {
		for _, slot := range s.Slots {
			for _, e := range slot.Exemplars {
				back[e.SpanID] = inStore("", e.SpanID)
			}
		}
	}
	require.NotEmpty(t, back)
	for id, name := range back {
		require.NotEmpty(t, name, id)
	}
	t.Logf("%s of %s: trace %s, %d of %d ns; %d spans lead back", operation, service, traceID, part, db.total(of()), len(back))
}

// pyroscopeID returns Pyroscope's profile ID for a type of values.
func pyroscopeID(kind string) string {
	t, _ := stackprofile.TypeOf(kind)
	return "gpu:" + kind + ":" + t.Unit() + ":gpu:nanoseconds"
}

// pprofJSON is a pprof profile as protobuf's JSON, where 64-bit integers are strings.
type pprofJSON struct {
	StringTable []string
	Sample      []struct{ LocationID, Value []string }
	Location    []struct {
		ID   string
		Line []struct{ FunctionID string }
	}
	Function []struct{ ID, Name string }
}

// stacks returns the values by stack, from root to leaf.
func (p *pprofJSON) stacks() map[string]int64 {
	functions, locations, sums := map[string]string{}, map[string]string{}, map[string]int64{}
	for _, f := range p.Function {
		i, _ := strconv.Atoi(f.Name)
		functions[f.ID] = p.StringTable[i]
	}
	for _, l := range p.Location {
		locations[l.ID] = functions[l.Line[0].FunctionID]
	}
	for _, s := range p.Sample {
		var stack []string
		for _, l := range slices.Backward(s.LocationID) {
			stack = append(stack, locations[l])
		}
		v, _ := strconv.ParseInt(s.Value[0], 10, 64)
		sums[strings.Join(stack, ";")] += v
	}
	return sums
}

// body returns the response to a GET request; status is 0 if there is none.
func body(address string) (status int, text []byte) {
	resp, err := http.Get(address)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, text
}
