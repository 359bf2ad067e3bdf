// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// decodes returns 100 decodes of 32 tokens, one every 3 s, that take tokenTime per token.
func decodes(r *rand.Rand, version string, from time.Time, tokenTime float64, batch int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr(string(semconv.ServiceNameKey), "llm")
	rs.Resource().Attributes().PutStr(serviceVersion, version)
	rs.Resource().Attributes().PutStr("service.instance.id", "pod-"+version)
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	for i := range 100 {
		s := spans.AppendEmpty()
		var trace pcommon.TraceID
		binary.BigEndian.PutUint64(trace[:], uint64(from.UnixNano()))
		trace[15] = byte(i + 1)
		s.SetTraceID(trace)
		s.SetSpanID(pcommon.SpanID{1, byte(i)})
		s.SetName("decode")
		seconds := 32 * tokenTime * math.Exp(0.05*r.NormFloat64())
		at := from.Add(time.Duration(3*i) * time.Second)
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(at))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(at.Add(time.Duration(seconds * 1e9))))
		a := s.Attributes()
		a.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeKernel)
		a.PutStr(string(semconv.GPUOperationNameKey), "decode")
		a.PutStr(string(semconv.HWIDKey), "GPU-1")
		a.PutStr(string(semconv.HWModelKey), "NVIDIA H100")
		a.PutDouble(string(semconv.GPUDurationKey), seconds)
		a.PutInt(string(semconv.GPUOperationItemsKey), int64(32*batch))
		a.PutStr(string(semconv.GPUOperationItemTypeKey), "token")
		a.PutDouble(string(semconv.GPUEnergyKey), 300*seconds)
	}
	return td
}

func TestAnOperationThatTakesMoreInANewVersionIsReported(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name  string
		rise  float64
		batch int // items of the second version, relative to the first
		found int
	}{
		{"slower", 1.3, 1, 2},
		{"as before", 1, 1, 0},
		{"larger batches", 2, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newFinder(t, nil)
			r := rand.New(rand.NewPCG(1, 2))
			a.take(decodes(r, "1.4.1", now.Add(-15*time.Minute), 1e-3, 1), now.UnixNano())
			a.take(decodes(r, "1.4.2", now.Add(-7*time.Minute), 1e-3*c.rise, c.batch), now.UnixNano())
			out := a.output(now.UnixNano(), false)
			points := map[string]float64{}
			for _, rm := range out.ResourceMetrics().All() {
				for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
					if m.Name() != semconv.GPURegressionRatioName {
						continue
					}
					service, _ := rm.Resource().Attributes().Get(string(semconv.ServiceNameKey))
					assert.Equal(t, "llm", service.Str())
					for _, p := range m.Gauge().DataPoints().All() {
						q, _ := p.Attributes().Get(string(semconv.GPURegressionQuantityKey))
						v, _ := p.Attributes().Get(string(semconv.GPURegressionVersionKey))
						b, _ := p.Attributes().Get(string(semconv.GPURegressionBaselineKey))
						assert.Equal(t, []string{"1.4.2", "1.4.1"}, []string{v.Str(), b.Str()})
						points[q.Str()] = p.DoubleValue()
						assert.Equal(t, 1, p.Exemplars().Len())
					}
				}
			}
			assert.Len(t, points, c.found)
			td := said(t, a, now.UnixNano())
			require.Equal(t, c.found, td.SpanCount())
			if c.found == 0 {
				return
			}
			assert.InDelta(t, c.rise, points["time"], 0.05)
			assert.InDelta(t, c.rise, points["energy"], 0.05)
			for i := range td.ResourceSpans().Len() {
				rs := td.ResourceSpans().At(i)
				assert.Equal(t, map[string]any{"service.name": "llm", "service.version": "1.4.2"},
					rs.Resource().Attributes().AsRaw())
				s := rs.ScopeSpans().At(0).Spans().At(0)
				assert.Equal(t, "regression decode", s.Name())
				attrs := s.Attributes().AsRaw()
				assert.Equal(t, "regression", attrs["gpu.finding.kind"])
				assert.InDelta(t, c.rise, attrs["gpu.regression.ratio"], 0.05)
				assert.Less(t, 1.1, attrs["gpu.regression.lower"])
				assert.Less(t, attrs["gpu.regression.ratio"], attrs["gpu.regression.upper"])
				assert.Contains(t, attrs["gpu.finding.evidence"], "per token of decode is 1.")
				assert.Equal(t, 0.1, attrs["gpu.finding.threshold"])
				require.Equal(t, 1, s.Links().Len())
				trace, link := s.TraceID(), s.Links().At(0).TraceID()
				assert.Greater(t, binary.BigEndian.Uint64(trace[:]), binary.BigEndian.Uint64(link[:]),
					"an example of the new version, with one of the old")
			}
			assert.Zero(t, said(t, a, now.UnixNano()).SpanCount(), "once")
			assert.Positive(t, a.output(now.UnixNano(), false).DataPointCount())
		})
	}
}

// Of staging, with a newer version, and of a service with the same name in another namespace.
func TestServicesOfOneNameAreNotComparedWithEachOther(t *testing.T) {
	now := time.Now()
	for _, key := range []string{serviceNamespace, deploymentEnvironment} {
		a := newFinder(t, nil)
		r := rand.New(rand.NewPCG(1, 2))
		at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
		take := func(version, value string, from time.Time, tokenTime float64) {
			td := decodes(r, version, from, tokenTime, 1)
			td.ResourceSpans().At(0).Resource().Attributes().PutStr(key, value)
			a.take(td, now.UnixNano())
		}
		take("1", "a", at(-32), 1e-3)
		take("2", "b", at(-25), 2e-3)
		assert.Zero(t, said(t, a, now.UnixNano()).SpanCount(), key)
		take("2", "a", at(-18), 2e-3)
		td := said(t, a, now.UnixNano())
		require.Equal(t, 2, td.SpanCount(), key)
		assert.Equal(t, map[string]any{"service.name": "llm", "service.version": "2", key: "a"},
			td.ResourceSpans().At(0).Resource().Attributes().AsRaw())
	}
}

func TestSpansWithoutASettledBaselineAreNotCompared(t *testing.T) {
	now := time.Now()
	a := newFinder(t, func(c *Config) { c.Regressions.Get().MaxOperations = 1 })
	r := rand.New(rand.NewPCG(1, 2))
	td := decodes(r, "1", now.Add(-15*time.Minute), 1e-3, 1)
	other := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(7)
	other.Attributes().PutStr(string(semconv.GPUOperationNameKey), "prefill")
	a.take(td, now.UnixNano())
	a.output(now.UnixNano(), false)
	assert.Empty(t, a.findings())
	assert.EqualValues(t, 1, a.stats.operationLimit)
}
