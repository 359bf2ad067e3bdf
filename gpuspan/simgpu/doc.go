// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package simgpu is a simulated GPU: streams, events, copy and compute engines, clocks, power, temperature and
// counters, in pure Go.
//
// It implements [backend.Backend], so the library runs on it as on a driver, anchors and clock mapping included: the
// device has a clock of its own (offset, drift, tick), event times are float32 milliseconds, and the true host time
// of every event can be asked for, which no real device offers.
//
// Work is stated as bytes and FLOPs; how long it takes follows from the device: a kernel runs for the longer of its
// memory and its arithmetic time at the clock that the power limit allows, on one compute engine shared by all
// streams; copies run on one engine per direction. The device meters itself as hardware does: integrals only go up
// (joules, busy seconds, bytes), and whoever samples them sees no span. So a join of samples into spans that is
// tested on simgpu is not handed its own answer.
//
// With a [ManualClock] everything is deterministic and nothing waits. Numbers are a model, not a measurement; a
// device says so in its vendor name, "simulated".
package simgpu
