// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package gpucapturereceiver

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
)

var errPlatform = errors.New("processes can be captured on Linux only")

type captureReceiver struct{}

func newReceiver(receiver.Settings, *Config, consumer.Traces) (*captureReceiver, error) {
	return nil, errPlatform
}

func (*captureReceiver) Start(context.Context, component.Host) error { return errPlatform }
func (*captureReceiver) Shutdown(context.Context) error              { return nil }

// Capture returns an error, because only Linux is supported.
func Capture(context.Context, int, *Config, consumer.ConsumeTracesFunc) (Result, error) {
	return Result{}, errPlatform
}
