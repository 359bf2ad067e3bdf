// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package otlpreceiver is the OTLP receiver of the Collector, with valid UTF-8 in metrics and logs.
// That receiver accepts other bytes. An exporter joins the requests of several senders, and a strict
// store rejects all of them, points with each output of a series again. Texts of spans are made
// valid by gpu_derive.
package otlpreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// NewFactory returns the factory of the receiver. Type, configuration and stability are the
// Collector's.
func NewFactory() receiver.Factory {
	of := otlpreceiver.NewFactory().(xreceiver.Factory)
	metrics := func(
		ctx context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics,
	) (receiver.Metrics, error) {
		valid, err := consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
			spanfacts.ValidMetrics(md)
			return next.ConsumeMetrics(ctx, md)
		}, consumer.WithCapabilities(next.Capabilities()))
		if err != nil {
			return nil, err
		}
		return of.CreateMetrics(ctx, set, cfg, valid)
	}
	logs := func(
		ctx context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs,
	) (receiver.Logs, error) {
		valid, err := consumer.NewLogs(func(ctx context.Context, ld plog.Logs) error {
			spanfacts.ValidLogs(ld)
			return next.ConsumeLogs(ctx, ld)
		}, consumer.WithCapabilities(next.Capabilities()))
		if err != nil {
			return nil, err
		}
		return of.CreateLogs(ctx, set, cfg, valid)
	}
	return xreceiver.NewFactory(of.Type(), of.CreateDefaultConfig,
		xreceiver.WithTraces(of.CreateTraces, of.TracesStability()),
		xreceiver.WithMetrics(metrics, of.MetricsStability()),
		xreceiver.WithLogs(logs, of.LogsStability()),
		xreceiver.WithProfiles(of.CreateProfiles, of.ProfilesStability()))
}
