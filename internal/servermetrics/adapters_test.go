// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// A server with adapters (LoRA), on a device of 100 W and 200 W alternately: each joule counts
// once, whether the engine counts tokens by its base model, as vLLM does, or by adapter, of which
// the second one is loaded after 30 s. Energy names the model if there is only one.
func TestEnergyOfAServerWithAdapters(t *testing.T) {
	for name, tt := range map[string]struct {
		models []string // as labels of the base model's and of two adapters' requests
		joules map[string]float64
	}{
		"base model": {[]string{"base", "base", "base"}, map[string]float64{"base": 15000}},
		"adapters":   {[]string{"base", "base-sql", "base-chat"}, map[string]float64{"base": 4500, "": 10500}},
	} {
		t.Run(name, func(t *testing.T) {
			st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
			const start = 1_700_000_000
			dev, err := st.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-1", Interval: time.Second, Ordinal: -1})
			require.NoError(t, err)
			defer dev.Close()
			var all Meters
			m := all.New(Identity{Devices: []string{"GPU-1"}})
			joules := 0.
			for sec := range int64(101) {
				s := devicesamples.Sample{Time: (start + sec) * 1e9}
				s.Set(devicesamples.Energy, joules)
				joules += float64(100 + 100*(sec%2))
				dev.Write([]devicesamples.Sample{s})
				p := &Page{}
				p.Add("vllm:lora_requests_info", map[string]string{"running_lora_adapters": "sql,chat", "max_lora": "2"}, float64(start+sec))
				tokens, running := map[string]float64{}, map[string]float64{}
				for i, model := range tt.models {
					if i == 0 || sec > 30 {
						tokens[model] += float64(1+i) * float64(sec-30*min(int64(i), 1))
						running[model]++
					}
				}
				for model, n := range tokens {
					labels := map[string]string{"model_name": model, "engine": "0"}
					p.Add("vllm:num_requests_running", labels, running[model])
					p.Add("vllm:generation_tokens_total", labels, n)
				}
				m.Add(p, (start+sec)*1e9)
				view := st.Acquire()
				all.Measure(view, st)
				view.Release()
			}
			for model, want := range tt.joules {
				assert.InEpsilon(t, want, m.joules[model][active], 1e-9, model)
			}
			assert.Len(t, m.joules, len(tt.joules))
			assert.InEpsilon(t, 15000, m.energy(active)+m.energy(idle)+m.energy(unknown), 1e-9)
			tokens := 0.
			for at, n := range m.totals {
				if at.q == Output {
					tokens += n
				}
			}
			assert.InEpsilon(t, 15000./(100+70*(2+3)), m.energy(active)/tokens, 1e-9, "J per token of the server")
		})
	}
}
