// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// readText returns the page of a text.
func readText(t *testing.T, text string) *Page {
	p, err := Read(strings.NewReader(text))
	require.NoError(t, err)
	return p
}

// Tokens that were generated while pages were read, for servers whose pages come from several
// processes or from one that restarts.
func TestTokensOfSeveralProcesses(t *testing.T) {
	sglang := func(tokens ...int) (text string) {
		for i, n := range tokens {
			text += fmt.Sprintf("sglang:generation_tokens_total{model_name=\"m\",dp_rank=\"%d\"} %d\n", i, n)
		}
		return text
	}
	federated := func(a, b, startB int) string {
		return fmt.Sprintf(`vllm:generation_tokens_total{model_name="m",instance="a"} %d 1700000000000
vllm:generation_tokens_total{model_name="m",instance="b"} %d 1700000000000
process_start_time_seconds{instance="a"} 1000
process_start_time_seconds{instance="b"} %d
`, a, b, startB)
	}
	for name, tt := range map[string]struct {
		pages []string
		want  float64
	}{
		"one":              {[]string{sglang(100), sglang(110), sglang(110), sglang(130)}, 30},
		"restarted":        {[]string{sglang(100), sglang(130), sglang(5), sglang(15), sglang(120), sglang(125)}, 30 + 5 + 10 + 105 + 5},
		"another label":    {[]string{sglang(100), sglang(100, 7), sglang(110, 9)}, 10 + 9},
		"a load balancer":  {[]string{sglang(1e6), sglang(5e5), sglang(1e6 + 10), sglang(5e5 + 20), sglang(1e6 + 10), sglang(5e5 + 50)}, 10 + 50},
		"three processes":  {[]string{sglang(9e5), sglang(5e5), sglang(100), sglang(130), sglang(9e5 + 1), sglang(5e5 + 2), sglang(140)}, 100 + 40 + 1 + 2},
		"federation":       {[]string{federated(1e6, 500, 2000), federated(1e6+10, 510, 2000)}, 20},
		"one of them ends": {[]string{federated(1e6, 500, 2000), federated(1e6+10, 510, 2000), federated(1e6+20, 5, 5000), federated(1e6+30, 9, 5000)}, 30 + 10 + 5 + 4},
	} {
		t.Run(name, func(t *testing.T) {
			var all Meters
			m := all.New(Identity{})
			for i, text := range tt.pages {
				m.Add(readText(t, text), int64(4000+i)*1e9)
			}
			assert.Equal(t, tt.want, m.totals[total{Output, "m"}])
		})
	}
}

// Cached tokens of llama.cpp are not among its prompt tokens, and older versions do not count them.
func TestInputIncludesCachedTokens(t *testing.T) {
	for name, cached := range map[string]float64{"old": 0, "since August 2026": 50} {
		var all Meters
		m := all.New(Identity{})
		for i := range 2 {
			p := &Page{}
			p.Add("llamacpp:prompt_tokens_total", nil, 10*float64(i))
			if cached > 0 {
				p.Add("llamacpp:prompt_tokens_cached_total", nil, cached*float64(i))
			}
			m.Add(p, int64(1+i)*1e9)
		}
		assert.Equal(t, 10+cached, m.totals[total{q: Input}], name)
		assert.Equal(t, cached, m.totals[total{q: Cached}], name)
	}
}

// A server is read for a minute, is gone for twenty, and comes back.
func TestSeriesOfAServerThatIsGoneEnd(t *testing.T) {
	var all Meters
	m := all.New(Identity{Address: "a"})
	last := map[string]bool{} // metrics, and whether their last point had a value
	var counted []float64
	report := func(second int64) {
		dst := pmetric.NewMetricSlice()
		all.Append(dst, second*1e9)
		for _, x := range dst.All() {
			var points pmetric.NumberDataPointSlice
			if x.Type() == pmetric.MetricTypeSum {
				points = x.Sum().DataPoints()
			} else {
				points = x.Gauge().DataPoints()
			}
			for _, p := range points.All() {
				last[x.Name()] = !p.Flags().NoRecordedValue()
				if x.Name() == "gpu.server.tokens" && last[x.Name()] {
					counted = append(counted, p.DoubleValue())
				}
			}
		}
	}
	page := func(second int64) {
		m.Add(readText(t, fmt.Sprintf("vllm:num_requests_running 3\nvllm:generation_tokens_total %d\n", second)), second*1e9)
	}
	second := int64(1000)
	until := func(end int64, alive bool) {
		for ; second < end; second += 10 {
			if alive {
				page(second)
			}
			report(second)
		}
	}
	both := map[string]bool{"gpu.server.running": true, "gpu.server.tokens": true}
	until(1060, true)
	assert.Equal(t, both, last)
	until(1110, false)
	assert.Equal(t, both, last, "not yet")
	until(1130, false)
	assert.Equal(t, map[string]bool{"gpu.server.running": false, "gpu.server.tokens": true}, last)
	until(1940, false)
	assert.False(t, m.Ended())
	until(1970, false)
	assert.Equal(t, map[string]bool{"gpu.server.running": false, "gpu.server.tokens": false}, last)
	assert.True(t, m.Ended())
	until(2300, false)
	assert.Equal(t, 50., counted[len(counted)-1])
	until(2330, true)
	assert.Equal(t, both, last)
	assert.Equal(t, 20., counted[len(counted)-1], "it starts again")
}

// A server behind the proxy of a container runtime on a machine of several GPUs, and a misspelled
// device.
func TestAServerWithoutDevicesIsLogged(t *testing.T) {
	st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	for _, id := range []string{"GPU-1", "GPU-2"} {
		dev, err := st.Register(component.MustNewID(strings.ToLower(strings.ReplaceAll(id, "-", ""))), devicesamples.Device{ID: id, Ordinal: -1})
		require.NoError(t, err)
		defer dev.Close()
	}
	core, logs := observer.New(zap.WarnLevel)
	all := Meters{Logger: zap.New(core)}
	known := all.New(Identity{Address: "known", Devices: []string{"GPU-2"}})
	proxy := all.New(Identity{Address: "proxy", PID: func() int64 { return 7 }})
	misspelled := all.New(Identity{Address: "misspelled", Devices: []string{"GPU-3"}})
	for second := int64(1000); second <= 1120; second += 10 {
		for _, m := range []*Meter{known, proxy, misspelled} {
			m.Add(readText(t, "vllm:num_requests_running 3\n"), second*1e9)
		}
		view := st.Acquire()
		all.Measure(view, st)
		view.Release()
		if second == 1050 {
			assert.Zero(t, logs.Len(), "it may be found later")
		}
	}
	var servers []any
	for _, l := range logs.All() {
		servers = append(servers, l.ContextMap()["server"])
		assert.Contains(t, l.Message, "set `devices` or `pod`")
	}
	assert.ElementsMatch(t, []any{"proxy", "misspelled"}, servers)
}
