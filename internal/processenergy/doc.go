// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package processenergy divides the energy of a device among the processes that use it, without
// spans. It makes no calls: a source passes the device's energy counter and the utilization that the
// driver reports for each process.
//
// A window lies between the newest utilization samples of two answers of the driver, because the
// averages cover the time between them and not the time between two polls. The energy of a window
// is the difference of the counter, interpolated between its changes, so that windows sum to the
// counter. It is divided into
//
//   - idle energy, which the device would have used without work: apart with and without a context,
//     because a context keeps clocks up;
//   - the active energy of each process, by its share of the time in which kernels were resident,
//     weighted by the power that the process draws when it is resident, once windows with different
//     shares have shown it (see [model]);
//   - an unattributed rest, if the device was busy without a process that explains it.
package processenergy
