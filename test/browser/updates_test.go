// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/page"
)

// loaded returns a model of 100,000 spans in a minute: a job of 4 ranks with 20 operations, and a
// service. more adds another second.
func loaded(t testing.TB) (m *page.Model, more func()) {
	now := time.Now().Add(-time.Minute)
	m = page.NewWithClock(func() time.Time { return now })
	second := int64(0)
	more = func() {
		now = now.Add(time.Second)
		second++
		for rank := range 4 {
			list := make([]span, 0, 420)
			for i := range 400 {
				list = append(list, span{
					fmt.Sprint("operation ", i%20), "section", now.Add(-time.Second + time.Duration(i)*2*time.Millisecond),
					1500 * time.Microsecond, byte(second),
					map[string]any{
						"gpu.energy": 0.5, "gpu.flop.count": 1e9 * float64(1+i%20),
						"gpu.flop.precision": "bf16", "gpu.io.size": 1_000_000, "gpu.roofline.bound": "compute",
					},
				})
			}
			for i := range int64(8) {
				list = append(list, span{
					"train", "step", now.Add(-time.Second + time.Duration(i)*125*time.Millisecond),
					time.Duration(110+10*rank) * time.Millisecond, byte(second),
					map[string]any{
						"gpu.step.index": 8*second + i, "gpu.step.phase.duration.forward": 0.04, "gpu.step.phase.duration.backward": 0.05,
					},
				})
			}
			device := fmt.Sprint("GPU-", rank)
			m.Traces(spans(t, "training", device, rank, list...))
			m.Metrics(gauge("hw.gpu.utilization", device, 0.8, now))
			m.Metrics(gauge("hw.power", device, 600, now))
			m.Metrics(gauge("hw.gpu.memory.usage", device, 40*(1<<30), now))
		}
		for i := range 20 {
			m.Traces(spans(t, "chat", "GPU-0", -1, span{
				"decode", "share", now.Add(-time.Second), 40 * time.Millisecond, byte(20*second) + byte(i),
				map[string]any{"gpu.request.duration": 0.2, "gpu.energy": 3.0, "gpu.operation.items": 10},
			}))
		}
	}
	for range 62 {
		more()
	}
	return m, more
}

// An open page with 100,000 spans receives small updates, keeps few nodes, and draws each section
// in a separate task. The longest tasks are in the log, because they depend on the machine.
func TestAPageOf100000SpansIsUpdatedInPieces(t *testing.T) {
	m, more := loaded(t)
	address := serve(t, m)
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // as the page
	_, err := z.Write(fetch(t, address+"/api/state?range=60"))
	require.NoError(t, errors.Join(err, z.Close()))
	opening := tasks(t)
	b := open(t, address, 1300, 1000)
	b.until(`state.health.spans > 95000 && !pending.size`)
	logTasks(t, "opening", opening())
	b.run(`window.sizes = []; const ask = window.fetch; window.fetch = async (...a) => { const r = await ask(...a), c = r.clone(); if (String(a[0]).includes("state")) c.text().then((t) => sizes.push(t.length)); return r; }`)
	whole := eval[int](b, `JSON.stringify(state).length`)
	updating := tasks(t)
	for range 4 {
		drawn := eval[int](b, `state.now`)
		more()
		b.until(fmt.Sprintf(`state.now > %d && !pending.size`, drawn))
	}
	logTasks(t, "updates", updating())
	sizes, nodes := eval[[]int](b, `sizes`), eval[int](b, `document.querySelectorAll("*").length`)
	t.Logf("state of %d bytes (%d with gzip), updates of %v bytes, %d nodes", whole, packed.Len(), sizes, nodes)
	choosing := tasks(t)
	b.run(`live.range = 600; live.reload()`)
	b.until(`state.range === 600 && !pending.size`)
	b.run(`choose(state.to - 40000, state.to - 5000)`)
	b.until(`state.to - state.from === 35000 && !pending.size`)
	b.run(`openTrace(state.requests[0].trace)`)
	b.until(`document.querySelectorAll("#trace .track").length > 1 && !pending.size`)
	logTasks(t, "ten minutes, a selection, a trace", choosing())
	assert.Less(t, nodes, 2500)
	for _, n := range sizes {
		assert.Less(t, n, whole/3)
	}
	left := eval[[]float64](b, `[...new Set([...document.querySelectorAll("#when svg.strip")].map((n) => n.getBoundingClientRect().left))]`)
	assert.Len(t, left, 1, "all tracks start at one pixel")
}
