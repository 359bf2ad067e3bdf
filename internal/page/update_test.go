// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patched does what the page does with an update: rows are new, or a run of rows of the list before.
func patched(old, list any) []any {
	before, _ := old.([]any)
	out := []any{}
	for _, x := range list.([]any) {
		if run, ok := x.([]any); ok {
			from, n := int(run[0].(float64)), int(run[1].(float64))
			out = append(out, before[from:from+n]...)
			continue
		}
		out = append(out, x)
	}
	return out
}

func TestAnUpdateIsSmallAndMakesTheWholeState(t *testing.T) {
	now := noon
	m := NewWithClock(func() time.Time { return now })
	second := func() {
		now = now.Add(time.Second)
		for i := range 4 {
			ago := noon.Sub(now) + time.Second
			m.Traces(traces(t, span{
				fmt.Sprint("op ", (now.Unix()+int64(i))%7), "section", ago, 500 * time.Millisecond, byte(i), map[string]any{"gpu.energy": 2.0},
			}, span{
				"train", "step", ago, 900 * time.Millisecond, byte(i),
				map[string]any{"gpu.step.index": 4*now.Unix() + int64(i), "gpu.step.phase.duration.forward": 0.3},
			}))
		}
	}
	for range 150 {
		second()
	}
	srv := httptest.NewServer(Handler(m, ""))
	t.Cleanup(srv.Close)
	get := func(query string) (map[string]any, int) {
		r, err := http.Get(srv.URL + "/api/state?range=60" + query)
		require.NoError(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		var s map[string]any
		require.NoError(t, json.Unmarshal(b, &s), string(b))
		return s, len(b)
	}
	have, whole := get("")
	require.Greater(t, whole, 40_000)
	for range 8 {
		second()
		update, size := get(fmt.Sprintf("&have=%.0f", have["update"]))
		assert.Less(t, size, whole/4, "of %d bytes", whole)
		assert.Equal(t, have["update"], update["base"])
		for _, k := range []string{"operations", "steps", "requests", "longest", "points", "bins"} {
			update[k] = patched(have[k], update[k])
		}
		devices := map[string]map[string]any{}
		for _, d := range have["devices"].([]any) {
			devices[d.(map[string]any)["id"].(string)] = d.(map[string]any)
		}
		for _, d := range update["devices"].([]any) {
			d := d.(map[string]any)
			before := devices[d["id"].(string)]
			for i, k := range []string{"covered", "busy", "power", "temperature", "throttled", "memory"} {
				d[k] = patched(before[k], d["changes"].([]any)[i])
			}
			d["recent"] = patched(before["recent"], d["newest"])
			delete(d, "changes")
			delete(d, "newest")
		}
		all, _ := get("")
		have = maps.Clone(update)
		delete(update, "base")
		delete(update, "update")
		delete(all, "update")
		assert.Equal(t, all, update)
	}
	_, size := get("&have=77777")
	assert.Greater(t, size, whole/2, "an unknown state is followed by the whole one")
	_, size = get(fmt.Sprintf("&have=%.0f&service=svc", have["update"]))
	assert.Greater(t, size, whole/2, "as is another query")
}

func TestSpansOfATraceAreKeptForItsWaterfall(t *testing.T) {
	m := at()
	td := traces(t, span{"outer", "section", 3 * time.Second, 500 * time.Millisecond, 1, map[string]any{"gpu.energy": 2.0}})
	outer := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	outer.SetName("outer")
	inner := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().AppendEmpty()
	outer.CopyTo(inner)
	inner.SetName("inner")
	inner.SetSpanID([8]byte{1})
	inner.SetParentSpanID(outer.SpanID())
	m.Traces(td)
	id := outer.TraceID().String()
	s := m.State(Query{Range: time.Minute, Saved: true})
	inside := map[string]string{}
	for _, o := range s.Operations {
		inside[o.Name] = o.Inside
		require.Len(t, o.Past, 1)
		assert.EqualValues(t, 1, o.Past[0].Count)
	}
	assert.Equal(t, map[string]string{"outer": "", "inner": "svc\nouter\nsection"}, inside)
	require.Len(t, s.Traces, 1, "a file has the traces that it names")
	x := m.Trace(id)
	assert.Equal(t, s.Traces[0], x)
	require.Len(t, x.Spans, 2)
	assert.Equal(t, TraceSpan{
		ID: outer.SpanID().String(), Duration: 0.5, Name: "outer", Type: "section", Service: "svc", Device: "gpu0", Rank: 1,
		Energy: 2,
	}, x.Spans[0])
	assert.Equal(t, x.Spans[0].ID, x.Spans[1].Parent)
	assert.Nil(t, m.Trace("no id"))

	// Later traces displace it, but a State has shown it.
	many := make([]span, 100)
	m.traces.most = 1000
	for i := range 11 {
		td := traces(t, many...)
		for j, x := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			x.SetTraceID([16]byte{0: 9, 12: byte(i), 13: byte(j >> 8), 14: byte(j), 15: 1})
		}
		m.Traces(td)
	}
	assert.NotNil(t, m.Trace(id))
	assert.Nil(t, m.Trace(fmt.Sprintf("09%028x01", 0)), "others are gone")
	assert.LessOrEqual(t, m.traces.spans, 1000)
}
