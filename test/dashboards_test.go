// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/semconv"
	"github.com/otelgpu/otelgpu/test/internal/integration"
)

type link struct{ Title, URL string }

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct {
			Unit  string
			Links []link
		}
	}
	Targets []struct {
		RefID, Expr, Query, LegendFormat, QueryType string
		Exemplar                                    bool
		Datasource                                  struct{ Type, UID string }
	}
}

type dashboard struct {
	UID, Title, Description string
	ID                      *int
	SchemaVersion           int
	Panels                  []panel
	Templating              struct {
		List []struct {
			Name, Type, Definition string
			Query                  any
		}
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "config", "grafana", "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 6)
	out := map[string]dashboard{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(b, &d), file)
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = d
	}
	return out
}

// query is a query of a panel, a variable or a document.
type query struct{ where, text string }

// metricQueries returns the PromQL queries, with variables replaced as in Grafana.
func metricQueries(t *testing.T) (all []query) {
	for name, d := range dashboards(t) {
		variables := []string{"$__rate_interval", "4m", "$__range_s", "600", "$__range", "10m"}
		for _, v := range d.Templating.List {
			value := ".*"
			if text, ok := v.Query.(string); ok && v.Type == "textbox" {
				value = text
			}
			variables = append(variables, "$"+v.Name, value)
		}
		replace := strings.NewReplacer(variables...)
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
				require.NotNil(t, m, v.Definition)
				all = append(all, query{name + ": variable " + v.Name, fmt.Sprintf(`group by (%s) (%s)`, m[2],
					replace.Replace(m[1]))})
			}
		}
		for _, p := range d.Panels {
			for _, x := range p.Targets {
				if x.Datasource.Type == "prometheus" {
					all = append(all, query{fmt.Sprintf("%s: %s %s", name, p.Title, x.RefID), replace.Replace(x.Expr)})
				}
			}
		}
	}
	source, err := os.ReadFile(filepath.Join("..", "config", "grafana", "provisioning", "datasources", "otelgpu.yaml"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^ +query: (.*)$`).FindAllStringSubmatch(string(source), -1) {
		all = append(all, query{"data source of traces", strings.ReplaceAll(m[1], "$$__tags", `job=~".*"`)})
	}
	all = append(all, documented(t, "promql")...)
	slices.SortFunc(all, func(a, b query) int { return strings.Compare(a.where, b.where) })
	return all
}

// documented returns the queries in the documents' fenced blocks of a language, one per line except
// comments.
func documented(t *testing.T, language string) (all []query) {
	block := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```")
	files, err := filepath.Glob(filepath.Join("..", "docs", "*.md"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join("..", "*", "*", "README.md"))
	require.NoError(t, err)
	for _, file := range append(files, more...) {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range block.FindAllSubmatch(b, -1) {
			for line := range strings.Lines(string(m[1])) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					all = append(all, query{file, line})
				}
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

type result struct {
	Labels  map[string]string
	Samples [][2]float64
}

// lacking returns why the query does not serve its panel or document, or "".
func lacking(store *prometheusProgram, q query, at time.Time) (values int, why string) {
	var got []result
	store.get("/api/v1/query?time="+unixSeconds(at)+"&query="+url.QueryEscape(q.text), &got)
	if len(got) == 0 {
		return 0, "no values"
	}
	for _, m := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(q.text, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			if label = strings.TrimSpace(label); label == "le" || mayBeAbsent[label] ||
				strings.Contains(q.text, "count(max by") || strings.Contains(q.text, "(group by") {
				continue
			}
			if !slices.ContainsFunc(got, func(s result) bool { return s.Labels[label] != "" }) && len(got[0].Labels) > 0 {
				return len(got), "no result has the label " + label
			}
		}
	}
	return len(got), ""
}

// mayBeAbsent lists labels of queries that the test's services do not have.
var mayBeAbsent = map[string]bool{
	"instance":                      true, // label of devices, which have it only if they are scraped
	"metadata_user_api_key_team_id": true, // a dimension of LiteLLM
}

// Every query of dashboards, rules and documents returns values from Prometheus, whether scraped or
// pushed, and every alert fires for its fault.
func TestIntegrationEveryQueryHasValuesAndEveryAlertFires(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	binary := buildCollector(t)
	m := startMachine(t, binary, true)
	for _, md := range runDemo(t, binary) {
		_, err := pmetricotlp.NewGRPCClient(m.otlp).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(md))
		require.NoError(t, err)
		time.Sleep(200 * time.Millisecond) // so that scrapes see the counters increase
	}
	queries := metricQueries(t)
	for way, store := range m.stores() {
		var missing []string
		if !assert.Eventually(t, func() bool {
			missing = nil
			now := time.Now()
			store.rules(t, "versions.yaml", now) // which records the values of a dashboard
			for _, q := range queries {
				if _, why := lacking(store, q, now); why != "" {
					missing = append(missing, q.where+": "+why+": "+q.text)
				}
			}
			return len(missing) == 0
		}, 3*time.Minute, time.Second) {
			t.Errorf("%s:\n%s", way, strings.Join(missing, "\n"))
		}
	}
	now := time.Now()
	for _, q := range queries {
		scraped, _ := lacking(m.scraped, q, now)
		pushed, _ := lacking(m.pushed, q, now)
		t.Logf("%3d scraped %3d pushed  %s: %s", scraped, pushed, q.where, q.text)
	}

	var answers map[string]int
	m.pushed.get("/answers", &answers)
	require.Len(t, answers, 1, "nothing that was pushed was refused: %v\n%s", answers, m.pushed.said())
	for way, store := range m.stores() {
		var found []struct {
			Exemplars []struct{ Labels map[string]string }
		}
		store.get("/exemplars?match="+url.QueryEscape(`gpu_operation_duration_seconds_bucket{job="server"}`), &found)
		require.NotEmpty(t, found, way)
		require.Len(t, found[0].Exemplars[0].Labels["trace_id"], 32, "%s: what the data source calls it", way)
	}

	anchors := runbooks(t)
	for way, store := range m.stores() {
		sharedPods(t, store, time.Now())
		var quiet []string
		if !assert.Eventually(t, func() bool {
			quiet = nil
			at := time.Now()
			for _, file := range alertFiles(t) {
				rules := store.rules(t, file, at)
				if file == "devices.yaml" { // also after the devices have stopped reporting
					for i, r := range store.rules(t, file, at.Add(15*time.Minute)) {
						rules[i].Alerts = append(rules[i].Alerts, r.Alerts...)
					}
				}
				for _, r := range rules {
					// A full queue would refuse the spans that the other rules need; gpu_join's own
					// tests fill one.
					if r.Results+len(r.Alerts) == 0 && r.Rule != "GPUJoinQueueFull" {
						quiet = append(quiet, r.Rule)
					}
					for _, a := range r.Alerts {
						require.NotContains(t, fmt.Sprint(a.Labels, a.Annotations), "<", "%s: the template", r.Rule)
						require.NotContains(t, fmt.Sprint(a.Annotations), "()", "%s: a label is missing", r.Rule)
						_, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "docs/runbooks.md#")
						require.Contains(t, anchors, anchor, r.Rule)
						require.Equal(t, strings.ToLower(r.Rule), anchor)
						require.NotEmpty(t, a.Annotations["description"], r.Rule)
					}
				}
			}
			return len(quiet) == 0
		}, 3*time.Minute, time.Second) {
			t.Errorf("%s: without a result or silent: %v", way, quiet)
		}
	}
	for _, file := range alertFiles(t) {
		for _, r := range m.scraped.rules(t, file, time.Now()) {
			for _, a := range r.Alerts {
				t.Logf("%s = %.4g: %s", r.Rule, a.Value, a.Annotations["summary"])
			}
		}
	}
}

// No alert fires for healthy work of the same kinds.
func TestIntegrationAlertsDoNotFireOnHealthyWork(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	m := startMachine(t, buildCollector(t), false)
	for way, store := range m.stores() {
		require.Eventually(t, func() bool { // all metrics of the alerts exist
			at := time.Now()
			for _, r := range store.rules(t, "work.yaml", at) {
				if r.Kind == "record" && r.Results == 0 {
					return false
				}
			}
			for _, q := range []string{
				"sum(increase(otelcol_processor_gpu_join_released_spans[1m])) > 200",
				"sum(increase(gpuspan_sections_total[1m])) > 100",
				"hw_errors_total", "gpu_throttle_time_seconds_total > 5", "gpu_straggler_score_ratio",
				"sum(otelcol_exporter_sent_metric_points) > 0", "otelcol_exporter_queue_capacity",
			} {
				if n, _ := lacking(store, query{text: q}, at); n == 0 {
					return false
				}
			}
			return true
		}, 3*time.Minute, time.Second, way)
		for _, file := range alertFiles(t) {
			for _, r := range store.rules(t, file, time.Now()) {
				for _, a := range r.Alerts {
					t.Errorf("%s: %s fires: %v %v", way, r.Rule, a.Value, a.Labels)
				}
			}
		}
	}
}

// runbooks returns the anchors of docs/runbooks.md.
func runbooks(t *testing.T) (anchors []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "docs", "runbooks.md"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(b), -1) {
		anchors = append(anchors, strings.ToLower(m[1]))
	}
	return anchors
}

// Grafana must be able to import a dashboard unchanged, and every panel needs a title and
// description.
func TestDashboardsAreImportable(t *testing.T) {
	uids := map[string]bool{}
	for name, d := range dashboards(t) {
		require.Equal(t, "otelgpu-"+name, d.UID)
		require.False(t, uids[d.UID])
		uids[d.UID] = true
		require.Nil(t, d.ID, "the importing Grafana gives it")
		require.Equal(t, 41, d.SchemaVersion)
		require.NotEmpty(t, d.Title)
		require.NotEmpty(t, d.Description)
		ids, taken := map[int]bool{}, map[[2]int]int{}
		for _, p := range d.Panels {
			require.False(t, ids[p.ID], "%s: panel %d", name, p.ID)
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					require.Zero(t, taken[[2]int{x, y}], "%s: %s overlaps another panel", name, p.Title)
					taken[[2]int{x, y}] = p.ID
				}
			}
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
			if p.Type == "row" {
				continue
			}
			require.NotEmpty(t, p.Description, "%s: %s", name, p.Title)
			require.NotEmpty(t, p.FieldConfig.Defaults.Unit, "%s: %s", name, p.Title)
			require.NotEmpty(t, p.Targets)
			for _, x := range p.Targets {
				require.Contains(t, []string{"${datasource}", "${traces}"}, x.Datasource.UID, "%s: %s", name, p.Title)
				require.Equal(t, p.Datasource, x.Datasource)
			}
			for _, l := range p.FieldConfig.Defaults.Links {
				require.True(t, strings.HasPrefix(l.URL, "/explore?schemaVersion=1&panes="), l.URL)
			}
		}
	}
}

// traceQueries returns the TraceQL queries of panels, links and documents.
func traceQueries(t *testing.T) (all []query) {
	for name, d := range dashboards(t) {
		for _, p := range d.Panels {
			where := name + ": " + p.Title
			for _, x := range p.Targets {
				if x.Datasource.Type == "tempo" {
					all = append(all, query{where, strings.ReplaceAll(x.Query, "$job", ".*")})
				}
			}
			for _, l := range p.FieldConfig.Defaults.Links {
				_, escaped, _ := strings.Cut(l.URL, "panes=")
				text, err := url.QueryUnescape(escaped)
				require.NoError(t, err)
				var panes map[string]struct{ Queries []struct{ Query string } }
				require.NoError(t, json.Unmarshal([]byte(text), &panes), l.URL)
				for _, q := range panes["t"].Queries {
					all = append(all, query{where + ", link " + l.Title, regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(q.Query,
						"x")})
				}
			}
		}
	}
	return append(all, documented(t, "traceql")...)
}

// Queries of a metric that several quantities share name the attribute that distinguishes them:
// the utilization of a device is not the utilization of its encoder.
func TestQueriesTellTheQuantitiesOfAMetricApart(t *testing.T) {
	rows, keys := map[string]int{}, map[string]string{}
	for _, q := range gpuquantity.All() {
		if m := q.Info().Metric; m.Key != "" && !m.Off {
			name := strings.ReplaceAll(m.Name, ".", "_") + "_"
			rows[name]++
			keys[name] = strings.ReplaceAll(string(m.Key), ".", "_")
		}
	}
	seen := 0
	apart := func(where, query, text string) {
		for name, n := range rows {
			if n > 1 && strings.Contains(query, name) {
				seen++
				assert.Contains(t, text, keys[name], "%s: %s", where, query)
			}
		}
	}
	for name, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, x := range p.Targets {
				apart(name+": "+p.Title, x.Expr, x.Expr+x.LegendFormat)
			}
		}
	}
	for _, file := range alertFiles(t) {
		b, err := os.ReadFile(filepath.Join("..", "config", "alerts", file))
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			apart(file, line, line)
		}
	}
	require.Greater(t, seen, 5)
}

// TraceQL compares a number only with a literal of the same type: an integer silently matches no
// doubles.
func TestLiteralsOfTraceQLHaveTheTypeOfTheAttribute(t *testing.T) {
	compared := regexp.MustCompile(
		`(?:span|resource|instrumentation)\.((?:gpu|hw)\.[a-z0-9_.]+) *(=~|!=|>=|<=|=|>|<) *("[^"]*"|[0-9.]+[a-z]*|nil|true|false)`)
	named := regexp.MustCompile(`(?:span|resource|instrumentation)\.((?:gpu|hw)\.[a-z0-9_.]+)`)
	seen := 0
	for _, q := range traceQueries(t) {
		for _, m := range named.FindAllStringSubmatch(q.text, -1) {
			_, known := semconv.LookupAttribute(m[1])
			assert.True(t, known, "%s: %s is not in the registry: %s", q.where, m[1], q.text)
		}
		for _, m := range compared.FindAllStringSubmatch(q.text, -1) {
			a, ok := semconv.LookupAttribute(m[1])
			if !ok || m[3] == "nil" {
				continue
			}
			seen++
			want := map[string]string{
				"string": `^"`, "double": `^[0-9]+\.[0-9]+$`, "int": `^[0-9]+$`,
				"boolean": `^(true|false)$`,
			}[fmt.Sprint(a.Type)]
			require.NotEmpty(t, want, "%s has type %v", m[1], a.Type)
			assert.Regexp(t, want, m[3], "%s: %s is a %v: %s", q.where, m[1], a.Type, q.text)
		}
	}
	require.Greater(t, seen, 10)
}

// Exemplars lead to traces only if the provisioned data source names the label that they have, and
// the dashboards' folders exist.
func TestProvisionedDataSourcesNameTheExemplarsTraceID(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "config", "grafana", "provisioning", "datasources", "otelgpu.yaml"))
	require.NoError(t, err)
	var c struct {
		Datasources []struct {
			UID, Type string
			JSONData  struct {
				Exemplars []struct{ Name, DatasourceUID string } `yaml:"exemplarTraceIdDestinations"`
				ToMetrics struct {
					DatasourceUID string `yaml:"datasourceUid"`
					Queries       []struct{ Query string }
				} `yaml:"tracesToMetrics"`
				ToProfiles struct {
					DatasourceUID string `yaml:"datasourceUid"`
					ProfileTypeID string `yaml:"profileTypeId"`
				} `yaml:"tracesToProfiles"`
			} `yaml:"jsonData"`
		}
	}
	require.NoError(t, yaml.Unmarshal(b, &c))
	require.Len(t, c.Datasources, 3)
	require.Equal(t, "prometheus", c.Datasources[0].Type)
	require.Equal(t, "tempo", c.Datasources[1].Type)
	require.Len(t, c.Datasources[0].JSONData.Exemplars, 1)
	require.Equal(t, "trace_id", c.Datasources[0].JSONData.Exemplars[0].Name)
	require.Equal(t, c.Datasources[0].UID, c.Datasources[1].JSONData.ToMetrics.DatasourceUID)
	require.Equal(t, "grafana-pyroscope-datasource", c.Datasources[2].Type)
	require.Equal(t, c.Datasources[2].UID, c.Datasources[1].JSONData.ToProfiles.DatasourceUID)
	require.Equal(t, pyroscopeID("gpu_time"), c.Datasources[1].JSONData.ToProfiles.ProfileTypeID)
}
