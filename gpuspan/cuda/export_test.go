// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda

// DriverVersion exports driverVersion to tests.
var DriverVersion = driverVersion
