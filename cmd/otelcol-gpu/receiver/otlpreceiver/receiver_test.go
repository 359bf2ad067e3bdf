// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlpreceiver

import (
	"bytes"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/freeport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The points and records of a sender that sends other bytes arrive in a form that a strict store
// accepts.
func TestMetricsAndLogsAreValidUTF8(t *testing.T) {
	address, err := freeport.Address()
	require.NoError(t, err)
	f := NewFactory()
	cfg := f.CreateDefaultConfig().(*otlpreceiver.Config)
	h := cfg.Protocols.HTTP.GetOrInsertDefault()
	h.ServerConfig.NetAddr.Endpoint = address
	cfg.Protocols.GRPC = configoptional.None[configgrpc.ServerConfig]()
	sink := new(consumertest.MetricsSink)
	r, err := f.CreateMetrics(t.Context(), receivertest.NewNopSettings(f.Type()), cfg, sink)
	require.NoError(t, err)
	records := new(consumertest.LogsSink)
	_, err = f.CreateLogs(t.Context(), receivertest.NewNopSettings(f.Type()), cfg, records) // the same receiver
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))

	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("m\xff")
	m.SetEmptyGauge().DataPoints().AppendEmpty().Attributes().PutStr("k", "v\xff")
	body, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	post := func(signal string, body []byte) {
		res, err := http.Post("http://"+address+"/v1/"+signal, "application/x-protobuf", bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, http.StatusOK, res.StatusCode)
	}
	post("metrics", body)
	require.Len(t, sink.AllMetrics(), 1)
	got, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(sink.AllMetrics()[0])
	require.NoError(t, err)
	assert.False(t, utf8.Valid(body))
	assert.Contains(t, string(got), "m\uFFFD")
	assert.Contains(t, string(got), "v\uFFFD")

	ld := plog.NewLogs()
	ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("b\xff")
	body, err = (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(t, err)
	post("logs", body)
	require.Len(t, records.AllLogs(), 1)
	assert.Equal(t, "b\uFFFD",
		records.AllLogs()[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().Str())
	require.NoError(t, r.Shutdown(t.Context()))
}

func TestTheOtherSignalsAreTheCollectors(t *testing.T) {
	own, of := NewFactory().(xreceiver.Factory), otlpreceiver.NewFactory().(xreceiver.Factory)
	assert.Equal(t, of.Type(), own.Type())
	assert.Equal(t, of.CreateDefaultConfig(), own.CreateDefaultConfig())
	assert.Equal(t, of.TracesStability(), own.TracesStability())
	assert.Equal(t, of.MetricsStability(), own.MetricsStability())
	assert.Equal(t, of.LogsStability(), own.LogsStability())
	assert.Equal(t, of.ProfilesStability(), own.ProfilesStability())
}
