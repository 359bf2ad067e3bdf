// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package configtest is for tests of a component's configuration: it reads the component's test data, and holds its
// README against configuration and telemetry.
package configtest
