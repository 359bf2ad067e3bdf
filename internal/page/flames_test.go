// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// profiledModel returns a model with spans of 4 s, then 2 s, whose stacks have settled, and its
// clock.
func profiledModel(t testing.TB) (*Model, *time.Time) {
	now := noon
	m := NewWithClock(func() time.Time { return now })
	m.Traces(traces(t,
		span{
			name: "gemm", kind: "section", start: 100 * time.Second, length: 4 * time.Second, trace: 7,
			attributes: map[string]any{"gpu.energy": 8.0, "gpu.self_energy": 8.0},
		},
		span{
			name: "norm", kind: "section", start: 20 * time.Second, length: 2 * time.Second, trace: 8,
			attributes: map[string]any{"gpu.energy": 1.5, "gpu.self_energy": 1.5},
		}))
	now = now.Add(10 * time.Second)
	return m, &now
}

func get(m *Model, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	Handler(m, "").ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func sums(t testing.TB, b []byte) map[string]int64 {
	t.Helper()
	p, err := profile.ParseData(b)
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	out := map[string]int64{}
	for _, s := range p.Sample {
		for i, v := range s.Value {
			out[p.SampleType[i].Type] += v
		}
	}
	return out
}

func TestPprofOfTheRequestedTime(t *testing.T) {
	m, _ := profiledModel(t)
	for path, want := range map[string][2]int64{
		"/pprof":                         {6e9, 9_500_000},
		"/pprof?window=10m":              {6e9, 9_500_000},
		"/pprof?window=1m":               {2e9, 1_500_000},
		"/pprof?service=svc":             {6e9, 9_500_000},
		"/pprof?service=other":           {0, 0},
		"/pprof?service=svc&version=1.0": {0, 0},
	} {
		w := get(m, path)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		got := sums(t, w.Body.Bytes())
		assert.Equal(t, want, [2]int64{got["gpu_time"], got["gpu_energy"]}, path)
		assert.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Resource-Policy"), "protected as the page is")
	}
	p, err := profile.ParseData(get(m, "/pprof?type=gpu_energy").Body.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "gpu_energy", p.DefaultSampleType)
	for path, want := range map[string]string{
		"/pprof?type=heat":      "type must be one of [gpu_time gpu_energy gpu_idle], found \"heat\"",
		"/pprof?window=1s":      "window must be a duration from 15s to 10m, found \"1s\"",
		"/pprof?window=11m":     "window must be a duration",
		"/pprof?from=5&to=4":    "from before to",
		"/pprof?range=60":       "unknown parameter \"range\"",
		"/api/flames?window=ha": "window must be a duration",
	} {
		w := get(m, path)
		assert.Equal(t, http.StatusBadRequest, w.Code, path)
		assert.Contains(t, w.Body.String(), want, path)
	}
}

// Stacks expire with the time that the page keeps, and spans from the future are rejected.
func TestStacksExpireWithTheKeptTime(t *testing.T) {
	m, now := profiledModel(t)
	require.Len(t, m.Profiles(ProfileQuery{}), 1)
	*now = noon.Add(keptSeconds * time.Second)
	m.Traces(traces(t, span{name: "new", kind: "section", start: -keptSeconds * time.Second, length: 1, trace: 9}))
	*now = now.Add(5 * time.Second)
	list := m.Profiles(ProfileQuery{})
	require.Len(t, list, 1)
	assert.EqualValues(t, 1, stackprofile.Totals(list)[stackprofile.Time])
	assert.Equal(t, 1, m.stacks.Stacks(), "older windows are removed")
}

func TestFlamesAreTheStacksAsATree(t *testing.T) {
	m, _ := profiledModel(t)
	w := get(m, "/api/flames?window=10m")
	require.Equal(t, http.StatusOK, w.Code)
	var g stackprofile.Graph
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &g))
	require.Equal(t, []stackprofile.GraphLabel{{Service: "svc"}}, g.Sources)
	total := 0.0
	for _, n := range g.Nodes {
		total += n.Values[stackprofile.Time]
		if g.Frames[n.Frame].Name == "gemm" {
			assert.Equal(t, "svc", g.Frames[g.Nodes[n.Parent].Frame].Name)
			assert.Equal(t, strings.Repeat("0", 31)+"8", n.Trace)
		}
	}
	assert.InDelta(t, 6e9, total, 1)
}

// pprofTop returns the table of go tool pprof with all nodes.
func pprofTop(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "pprof", "-top", "-nodefraction=0"}, args...)...)
	cmd.Env = append(cmd.Environ(), "PPROF_TMPDIR="+t.TempDir())
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, string(b))
	return string(b)
}

// go tool pprof reads the address, also as the base of a difference.
func TestGoToolPprofReadsThePage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the go command")
	}
	m, _ := profiledModel(t)
	srv := httptest.NewServer(Handler(m, ""))
	defer srv.Close()
	text := pprofTop(t, srv.URL+"/pprof?type=gpu_time&window=10m")
	assert.Regexp(t, `(?m)^ +4s +66\.67% .* gemm$`, text)
	assert.Regexp(t, `(?m)^ +2s +33\.33% .* norm$`, text)
	text = pprofTop(t, "-sample_index=gpu_energy", "-unit=microjoules", srv.URL+"/pprof?type=gpu_energy")
	assert.Regexp(t, `(?m)^ *8000000.* gemm$`, text)
	text = pprofTop(t, "-base", srv.URL+"/pprof?window=1m", srv.URL+"/pprof?window=10m")
	assert.Regexp(t, `(?m)^ +4s +.* gemm$`, text)
	assert.NotRegexp(t, `(?m) norm$`, text)
}

// go tool pprof reads every type of values, and differences of two versions that have no stack in
// common.
func TestGoToolPprofReadsEveryTypeAndDisjointVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the go command")
	}
	now := noon
	m := NewWithClock(func() time.Time { return now })
	for version, name := range map[string]string{"1": "old_kernel", "2": "new_kernel"} {
		work := map[string]any{"gpu.energy": 2.0, "gpu.self_energy": 2.0}
		td := traces(t,
			span{name: name, kind: "section", start: 100 * time.Second, length: 3 * time.Second, attributes: work},
			span{name: name, kind: "section", start: 96500 * time.Millisecond, length: time.Second, attributes: work})
		rs := td.ResourceSpans().At(0)
		rs.Resource().Attributes().PutStr("service.name", "chat")
		rs.Resource().Attributes().PutStr("service.version", version)
		rs.ScopeSpans().At(0).Scope().Attributes().PutStr("hw.id", "GPU-"+version)
		for i, s := range rs.ScopeSpans().At(0).Spans().All() {
			s.SetSpanID(pcommon.SpanID{version[0], byte(i)})
		}
		m.Traces(td)
	}
	now = now.Add(5 * time.Second)
	srv := httptest.NewServer(Handler(m, ""))
	defer srv.Close()
	for kind, want := range map[string]string{"gpu_time": "8s", "gpu_energy": "8000000", "gpu_idle": "1s"} {
		text := pprofTop(t, "-sample_index="+kind, "-unit="+map[string]string{"gpu_energy": "microjoules"}[kind], srv.URL+"/pprof")
		assert.Regexp(t, `nodes accounting for `+want+`\w*, 100% of `, text)
		assert.Regexp(t, `(?m)^ .* chat$`, text)
	}
	versions := srv.URL + "/pprof?service=chat&version="
	for _, flag := range []string{"-diff_base", "-base"} {
		text := pprofTop(t, flag, versions+"1", versions+"2")
		assert.Regexp(t, `(?m)^ +4s .* new_kernel$`, text)
		assert.Regexp(t, `(?m)^ +-4s .* old_kernel$`, text)
		text = pprofTop(t, flag, versions+"none", versions+"2")
		assert.Regexp(t, `(?m)^ +4s .* new_kernel$`, text, "a base without samples")
	}
}

// A report has the stacks of completely read files.
func TestReportsHaveFlames(t *testing.T) {
	b := NewBook()
	for _, name := range []string{"read", "broken"} {
		observe(t, b, name, func(_ *profiletrace.Profile, add func(event.Event, string)) {
			add(event.Event{Kind: event.KindKernel, Start: 1000, Duration: 1e6}, "gemm")
		})
	}
	b.Profile("read", nil, nil)
	s := b.State(nil)
	require.NotNil(t, s.Flames)
	sum := 0.0
	for _, n := range s.Flames.Nodes {
		sum += n.Values[stackprofile.Time]
	}
	assert.EqualValues(t, 1e6, sum)
	var out bytes.Buffer
	require.NoError(t, Report(&out, s))
	assert.Contains(t, out.String(), `"kind":"kernel"`)
	assert.Nil(t, NewBook().State(nil).Flames)
	assert.NotContains(t, get(at(), "/api/state").Body.String(), "flames", "a live page requests them")
}
