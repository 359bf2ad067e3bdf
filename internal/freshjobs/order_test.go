// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

// ordered returns a value as JSON with the keys of its objects in the order of the alphabet or the
// reverse.
func ordered(t *testing.T, v any, reverse bool) []byte {
	t.Helper()
	var b bytes.Buffer
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if reverse {
			slices.Reverse(keys)
		}
		for i, k := range keys {
			b.WriteByte("{,"[min(i, 1)])
			b.Write(ordered(t, k, reverse))
			b.WriteByte(':')
			b.Write(ordered(t, v[k], reverse))
		}
		if len(keys) == 0 {
			b.WriteByte('{')
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(ordered(t, x, reverse))
		}
		b.WriteByte(']')
	default:
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return text
	}
	return b.Bytes()
}

// Objects of JSON have no order: no reader gives another result if the keys of all objects have
// another order, such as devices behind the events that ran on them.
func TestOrderOfKeysDoesNotMatter(t *testing.T) {
	for name, text := range map[string]func(*sim) []byte{
		"kineto": (*sim).kineto, "kineto2021": (*sim).kineto2021, "rocprof": (*sim).rocprof, "onnx": (*sim).onnx,
		"proton": (*sim).proton,
		"proton in nanoseconds": func(s *sim) []byte {
			text := regexp.MustCompile(`(\d)\.(\d{3})`).ReplaceAll(s.proton(), []byte("$1$2"))
			return bytes.ReplaceAll(text, []byte("]}}"), []byte(`], "flops": 5}}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSim(7, a100)
			s.stacks = true
			s.steps(3, func(int) { s.train(size{2, 256, 256, 4, 2}) })
			decoder := json.NewDecoder(bytes.NewReader(text(s)))
			decoder.UseNumber()
			var file any
			require.NoError(t, decoder.Decode(&file))
			read := func(text []byte) (st kinetoreceiver.Stats, spans []map[string]any) {
				st, err := kinetoreceiver.Read(t.Context(), bytes.NewReader(text), profiletrace.Options{
					Detail: kinetoreceiver.DetailKernels, MemoryMiB: 1, TempDir: t.TempDir(),
				}, func(_ context.Context, batch ptrace.Traces) error {
					for _, r := range batch.ResourceSpans().All() {
						spans = append(spans, r.Resource().Attributes().AsRaw())
						for _, scope := range r.ScopeSpans().All() {
							for _, s := range scope.Spans().All() {
								a := s.Attributes().AsRaw()
								a["name"], a["start"], a["end"] = s.Name(), s.StartTimestamp(), s.EndTimestamp()
								spans = append(spans, a)
							}
						}
					}
					return nil
				})
				require.NoError(t, err)
				return st, spans
			}
			st, want := read(text(s))
			assert.NotEmpty(t, st.Devices)
			for _, reverse := range []bool{false, true} {
				other, spans := read(ordered(t, file, reverse))
				for i, d := range st.Devices {
					assert.Equal(t, d.Findings, other.Devices[i].Findings)
				}
				assert.Equal(t, st.Skipped, other.Skipped)
				assert.Equal(t, st.Faults, other.Faults)
				assert.ElementsMatch(t, want, spans)
			}
		})
	}
}
