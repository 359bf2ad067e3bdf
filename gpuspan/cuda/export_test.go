// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda

// DriverVersion is driverVersion.
var DriverVersion = driverVersion
