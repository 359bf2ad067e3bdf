// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package startpoint

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// metrics returns metrics of each form, of a new series with this count, and a gauge.
func metrics(temporality pmetric.AggregationTemporality, count int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	add := func(name string) pmetric.Metric { m := ms.AppendEmpty(); m.SetName(name); return m }
	sum := add("sum").SetEmptySum()
	sum.SetAggregationTemporality(temporality)
	h := add("histogram").SetEmptyHistogram()
	h.SetAggregationTemporality(temporality)
	e := add("exponential").SetEmptyExponentialHistogram()
	e.SetAggregationTemporality(temporality)
	for _, n := range []int{0, count} {
		sum.DataPoints().AppendEmpty().SetDoubleValue(float64(n))
		h.DataPoints().AppendEmpty().SetCount(uint64(n))
		e.DataPoints().AppendEmpty().SetCount(uint64(n))
	}
	add("gauge").SetEmptyGauge().DataPoints().AppendEmpty().SetDoubleValue(0)
	return md
}

// said returns the content of a request.
func said(md pmetric.Metrics) (out []string) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			switch m.Type() {
			case pmetric.MetricTypeSum:
				for _, p := range m.Sum().DataPoints().All() {
					out = append(out, fmt.Sprint(m.Name(), p.DoubleValue()))
				}
			case pmetric.MetricTypeHistogram:
				for _, p := range m.Histogram().DataPoints().All() {
					out = append(out, fmt.Sprint(m.Name(), p.Count()))
				}
			case pmetric.MetricTypeExponentialHistogram:
				for _, p := range m.ExponentialHistogram().DataPoints().All() {
					out = append(out, fmt.Sprint(m.Name(), p.Count()))
				}
			case pmetric.MetricTypeGauge:
				out = append(out, m.Name())
			}
		}
	}
	return out
}

func TestSendSendsPointsOfZeroFirstAndSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [][]string
		var err error
		next, e := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
			got = append(got, said(md))
			return err
		})
		require.NoError(t, e)
		o := Output{Next: next}
		send := func(md pmetric.Metrics, begins bool) (bool, [][]string) {
			got = nil
			began, failed := o.Send(t.Context(), md, begins)
			require.Equal(t, err, failed)
			return began, got
		}
		const cumulative = pmetric.AggregationTemporalityCumulative
		zeros := []string{"sum0", "histogram0", "exponential0"}
		rest := []string{"sum7", "histogram7", "exponential7", "gauge"}

		began, requests := send(metrics(cumulative, 7), true)
		require.True(t, began)
		require.Equal(t, [][]string{zeros, rest}, requests)
		_, requests = send(metrics(cumulative, 7), false)
		require.Len(t, requests, 1, "nothing begins: all in one")
		_, requests = send(metrics(pmetric.AggregationTemporalityDelta, 7), true)
		require.Len(t, requests, 1, "a delta of 0 is not a first point")

		err = errors.New("not now")
		for range 4 {
			began, requests = send(metrics(cumulative, 7), true)
			require.False(t, began)
			require.Equal(t, [][]string{zeros}, requests, "the rest waits")
			time.Sleep(Patience/4 - time.Second)
		}
		time.Sleep(5 * time.Second)
		began, requests = send(metrics(cumulative, 7), true)
		require.True(t, began, "no more patience")
		require.Equal(t, [][]string{zeros, rest}, requests)

		err = nil
		send(metrics(cumulative, 7), true)
		err = errors.New("again")
		began, _ = send(metrics(cumulative, 7), true)
		require.False(t, began, "the full patience applies again")
	})
}

func TestAPointOf0IsNoOlderThanAnotherConnectorsOutput(t *testing.T) {
	require.Equal(t, time.Second, Before(15*time.Second))
	require.Equal(t, 300*time.Millisecond, Before(900*time.Millisecond))
}
