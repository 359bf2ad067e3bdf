// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine is what package gpuspan and package train are made of. Their exported types are these, with the
// documentation for users.
//
//	caller's side     begin, record, end: take a slot, record events, hand the slot over
//	                  section, operation, stream, register, named, step, loop, boundary, phase: what callers hold
//	polling thread    poller, drain: read events back, many with one question; device: their clocks; tidy: what is due each second; watchdog: what hangs
//	placing           hostclock, and package clockmap: GPU times on the wall clock
//	nesting           nest: sections within sections; settlestep, stepfigures: steps and their phases
//	emitting          emit: spans; facts: their numbers; sink: without an SDK; metrics, observe: instruments; opstate, place: counts
package engine
