// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/otelgpu/otelgpu/test/internal/integration"
)

// standardCluster is a node as the GPU operator sets it up: dcgm-exporter with the labels of pods,
// two pods with a GPU each that send spans without a device, and the API server, which knows them.
type standardCluster struct {
	t       *testing.T
	zero    time.Time
	collect time.Duration
	net     string // of addresses
	named   bool   // pods name themselves, because the Collector does not
}

// Addresses of the node's pods within the loopback network.
const (
	agentPod = 10 + iota
	exporterPod
	firstPod // and the next one
)

func (c *standardCluster) ip(host int) string { return fmt.Sprint(c.net, host) }

func gpuUUID(i int) string { return fmt.Sprintf("GPU-00000000-1111-2222-3333-%012d", i) }

// joules returns what a GPU has used since zero: the first one 300 W, the second one 500 and 200 W
// for 20 s each.
func joules(gpu int, s float64) float64 {
	if gpu == 0 {
		return 300 * s
	}
	periods, rest := math.Floor(s/40), math.Mod(s, 40)
	return 14000*periods + 500*min(rest, 20) + 200*max(0, rest-20)
}

func drawn(gpu int, s float64) float64 { return (joules(gpu, s) - joules(gpu, s-.001)) / .001 }

// feed sends what a scrape finds to the agent, for builds without a receiver of Prometheus metrics.
func (c *standardCluster) feed(address string, scrape time.Duration, stop <-chan struct{}) {
	value := regexp.MustCompile(`(?m)^(\w+)\{(.*)\} (.*)$`)
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	for {
		page := httptest.NewRecorder()
		c.metrics(page, nil)
		md := pmetric.NewMetrics()
		list := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
		for _, line := range value.FindAllStringSubmatch(page.Body.String(), -1) {
			m := list.AppendEmpty()
			m.SetName(line[1])
			points := m.SetEmptyGauge().DataPoints()
			if strings.Contains(line[1], "TOTAL_ENERGY") {
				m.SetEmptySum().SetIsMonotonic(true)
				m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
				points = m.Sum().DataPoints()
			}
			p := points.AppendEmpty()
			p.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
			v, err := strconv.ParseFloat(line[3], 64)
			assert.NoError(c.t, err)
			p.SetDoubleValue(v)
			for _, x := range label.FindAllStringSubmatch(line[2], -1) {
				p.Attributes().PutStr(x[1], x[2])
			}
		}
		body, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
		assert.NoError(c.t, err)
		response, err := http.Post("http://"+address+"/v1/metrics", "application/x-protobuf", bytes.NewReader(body))
		if assert.NoError(c.t, err) {
			_ = response.Body.Close()
		}
		select {
		case <-stop:
			return
		case <-time.After(scrape):
		}
	}
}

// metrics writes what dcgm-exporter collected last.
func (c *standardCluster) metrics(w http.ResponseWriter, _ *http.Request) {
	s := (time.Since(c.zero) / c.collect * c.collect).Seconds()
	for _, m := range []struct {
		name, kind string
		value      func(gpu int) float64
	}{
		{"DCGM_FI_DEV_SM_CLOCK", "gauge", func(int) float64 { return 1980 }},
		{"DCGM_FI_DEV_POWER_USAGE", "gauge", func(gpu int) float64 { return drawn(gpu, s) }},
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", func(gpu int) float64 { return 1e9 + 1000*joules(gpu, s) }},
		{"DCGM_FI_DEV_GPU_UTIL", "gauge", func(int) float64 { return 97 }},
		{"DCGM_FI_DEV_FB_USED", "gauge", func(int) float64 { return 40000 }},
	} {
		fmt.Fprintf(w, "# HELP %s A field.\n# TYPE %s %s\n", m.name, m.name, m.kind)
		for gpu := range 2 {
			fmt.Fprintf(w, "%s{gpu=%q,UUID=%q,pci_bus_id=\"00000000:0%d:00.0\",device=\"nvidia%d\",modelName=\"NVIDIA H100 80GB HBM3\","+
				"Hostname=\"node-1\",DCGM_FI_DRIVER_VERSION=\"580.65.06\",container=\"main\",namespace=\"ml\",pod=\"work-%d\"} %f\n",
				m.name, fmt.Sprint(gpu), gpuUUID(gpu), gpu+1, gpu, gpu, m.value(gpu))
		}
	}
}

// kubernetes answers as an API server that has the node's pods and nothing else, in lists and in
// watches.
func (c *standardCluster) kubernetes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		if r.URL.Query().Get("sendInitialEvents") != "" { // as servers before 1.32
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	kind := map[string]string{"pods": "PodList", "namespaces": "NamespaceList", "nodes": "NodeList", "replicasets": "ReplicaSetList"}[filepath.Base(r.URL.Path)]
	version := "v1"
	if strings.HasPrefix(r.URL.Path, "/apis/apps/") {
		version = "apps/v1"
	}
	list := map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}}
	if kind == "PodList" {
		pod := func(namespace, name string, host int, labels map[string]any, port int) any {
			return map[string]any{
				"metadata": map[string]any{
					"name": name, "namespace": namespace, "uid": fmt.Sprint("uid-", host), "labels": labels,
					"creationTimestamp": "2026-01-01T00:00:00Z",
				},
				"spec": map[string]any{
					"nodeName": "node-1", "containers": []any{map[string]any{
						"name": "main", "image": "image", "ports": []any{map[string]any{"containerPort": port, "protocol": "TCP"}},
					}},
				},
				"status": map[string]any{
					"phase": "Running", "podIP": c.ip(host), "podIPs": []any{map[string]any{"ip": c.ip(host)}},
					"startTime": "2026-01-01T00:00:00Z",
				},
			}
		}
		list["items"] = []any{
			pod("gpu-operator", "nvidia-dcgm-exporter-x", exporterPod, map[string]any{"app": "nvidia-dcgm-exporter"}, 9400),
			pod("ml", "work-0", firstPod, nil, 8080), pod("ml", "work-1", firstPod+1, nil, 8080),
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

// serve serves HTTP at an address until the end of the test.
func serve(t *testing.T, address string, handle http.HandlerFunc) {
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server := &http.Server{Handler: handle}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// pod sends the spans of one pod, one after another, of 1 s, 5 s and 2.2 collections, and returns
// the number of each length.
func (c *standardCluster) pod(gpu int, until time.Time) (sent map[time.Duration]int) {
	from := &net.TCPAddr{IP: net.ParseIP(c.ip(firstPod + gpu))}
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext}}
	defer client.CloseIdleConnections()
	sent = map[time.Duration]int{}
	end := time.Now()
	for n := uint64(1); end.Before(until); n++ {
		length := map[uint64]time.Duration{3: 5 * time.Second, 5: 22 * c.collect / 10}[n%6]
		if length == 0 {
			length = time.Second
		}
		start := end
		end = start.Add(length)
		time.Sleep(time.Until(end))
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", fmt.Sprint("work-", gpu))
		if c.named {
			rs.Resource().Attributes().PutStr("k8s.namespace.name", "ml")
			rs.Resource().Attributes().PutStr("k8s.pod.name", fmt.Sprint("work-", gpu))
		}
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetName(length.String())
		s.SetTraceID(pcommon.TraceID{byte(gpu + 1), 15: byte(n)})
		s.SetSpanID(pcommon.SpanID{byte(gpu + 1), 7: byte(n)})
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
		s.Attributes().PutStr("gpu.operation.type", "section")
		body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
		if !assert.NoError(c.t, err) {
			return sent
		}
		response, err := client.Post("http://"+c.ip(agentPod)+":4318/v1/traces", "application/x-protobuf", strings.NewReader(string(body)))
		if !assert.NoError(c.t, err) {
			return sent
		}
		assert.Equal(c.t, http.StatusOK, response.StatusCode)
		_ = response.Body.Close()
		sent[length]++
	}
	return sent
}

// kubeconfig reaches the API server without credentials.
const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://%s"}}], users: [{name: u, user: {}}]}`

// The pipeline for clusters whose dcgm-exporter has its defaults, from the exporter's text to spans
// in the store: it finds the exporter and the pods by the API server, and joins the pods' spans,
// which name no device, by the exporter's labels. The energy of a span is right within its stated
// error, or omitted. With the default build, the test scrapes, and the pods name themselves.
func TestIntegrationStandardClusterIsJoinedByPodLabels(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the pods have addresses of the loopback interface, of which others have one")
	}
	binary, full := os.Getenv("OTELGPU_FULL_BINARY"), false
	if binary == "" {
		binary = buildCollector(t)
	} else {
		parts, err := exec.CommandContext(t.Context(), binary, "components").Output()
		require.NoError(t, err)
		full = strings.Contains(string(parts), "prometheusreceiver")
	}
	for i, x := range []struct {
		collect, scrape, settle, wait time.Duration
	}{
		{30 * time.Second, 5 * time.Second, 40 * time.Second, 75 * time.Second}, // the pipeline's defaults
		{15 * time.Second, 5 * time.Second, 25 * time.Second, 45 * time.Second},
	} {
		t.Run(x.collect.String(), func(t *testing.T) {
			t.Parallel()
			c := &standardCluster{
				t: t, zero: time.Now(), collect: x.collect, net: fmt.Sprintf("127.%d.%d.", 1+os.Getpid()/50%250, 201+i+2*(os.Getpid()%25)),
			}
			api := freeAddress(t)
			serve(t, api, c.kubernetes)
			serve(t, c.ip(exporterPod)+":9400", c.metrics)
			metrics := freeAddress(t)
			serve(t, metrics, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
			file := filepath.Join(t.TempDir(), "kubeconfig")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, kubeconfig, api), 0o600))
			store := newStore(t)
			store.open(t)
			pipeline := edited(t, "kubernetes/dcgm-exporter", func(at func(path ...string) map[string]any) {
				if !full {
					delete(at("processors"), "k8s_attributes")
					delete(at("receivers"), "prometheus")
					for _, p := range at("service", "pipelines") {
						p := p.(map[string]any)
						if list, ok := p["processors"].([]any); ok {
							p["processors"] = slices.DeleteFunc(list, func(id any) bool { return id == "k8s_attributes" })
						}
					}
					at("service", "pipelines", "metrics/devices")["receivers"] = []any{"otlp"}
					return
				}
				at("processors", "k8s_attributes")["auth_type"] = "kubeConfig"
				job := at("receivers", "prometheus", "config")["scrape_configs"].([]any)[0].(map[string]any)
				job["kubernetes_sd_configs"].([]any)[0].(map[string]any)["kubeconfig_file"] = file
			})
			startCollector(t, binary, []string{
				"KUBECONFIG=" + file, "OTELGPU_NODE_NAME=node-1", "OTELGPU_POD_IP=" + c.ip(agentPod), "OTELGPU_TRACES_ENDPOINT=" + store.address,
				"OTELGPU_PROMETHEUS_ENDPOINT=http://" + metrics, "OTELGPU_SCRAPE_INTERVAL=" + x.scrape.String(),
				"OTELGPU_SETTLE=" + x.settle.String(), "OTELGPU_MAX_WAIT=" + x.wait.String(),
			}, pipeline)
			until := time.Now().Add(6 * x.collect)
			if !full {
				c.named = true
				stop, fed := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(fed)
					c.feed(c.ip(agentPod)+":4318", x.scrape, stop)
				}()
				defer func() { close(stop); <-fed }()
			}
			var second map[time.Duration]int
			done := make(chan struct{})
			go func() {
				defer close(done)
				second = c.pod(1, until)
			}()
			sent := c.pod(0, until)
			<-done
			for length, n := range second {
				sent[length] += n
			}
			total := 0
			for _, n := range sent {
				total += n
			}
			require.True(t, waitUntil(x.wait+time.Minute, func() bool { n, _ := store.count(); return n >= total }),
				"%d spans were sent", total)
			c.check(store, sent)
		})
	}
}

// check compares the joined spans with the truth.
func (c *standardCluster) check(store *store, sent map[time.Duration]int) {
	store.mu.Lock()
	defer store.mu.Unlock()
	known, inside := map[time.Duration]int{}, 0
	sums, all := [2]float64{}, 0
	for id, s := range store.spans {
		gpu := int(id[0]) - 1
		at := s.Attributes().AsRaw()
		assert.Equal(c.t, gpuUUID(gpu), at["hw.id"], "%s of work-%d", s.Name(), gpu)
		energy, ok := at["gpu.energy"].(float64)
		if !ok {
			continue
		}
		from, to := s.StartTimestamp().AsTime().Sub(c.zero).Seconds(), s.EndTimestamp().AsTime().Sub(c.zero).Seconds()
		truth := joules(gpu, to) - joules(gpu, from)
		stated, _ := at["gpu.energy_error"].(float64)
		length, _ := time.ParseDuration(s.Name())
		known[length]++
		all++
		if math.Abs(energy-truth) <= max(stated, .05*energy) {
			inside++
		} else {
			c.t.Logf("%s of work-%d: %.0f J ± %.0f J for %.0f J", s.Name(), gpu, energy, stated, truth)
		}
		assert.Greater(c.t, energy, truth/10, "%s of work-%d, error %v", s.Name(), gpu, stated)
		sums[gpu] += energy
	}
	c.t.Logf("collected every %s: spans with energy %v of %v, %d of %d within the stated error", c.collect, known, sent, inside, all)
	assert.GreaterOrEqual(c.t, inside, all*95/100-1, "of so few spans, one may be outside")
	long := 22 * c.collect / 10
	assert.Positive(c.t, known[long], "spans of two collections have energy")
	for gpu, sum := range sums {
		assert.LessOrEqual(c.t, sum, 1.0001*joules(gpu, time.Since(c.zero).Seconds()))
	}
}
