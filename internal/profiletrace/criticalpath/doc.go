// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package criticalpath finds the critical path of each step of a profile: the chain of work and
// waits that the step's time consists of.
//
// It walks back from what ends the step. The start of an activity of a device is explained by the
// latest of
//
//   - the end of the activity before it on its stream,
//   - its launch, and the delay that launches usually have; the path then follows the launching thread of the host back
//     to a call that waited for the device, whose end is explained by the activity that ended in it,
//   - the end of an activity on another stream that its stream waited for, as the profile states it, or else the last
//     one that ended a little before, which is an inference.
//
// Work that started long after all of these, while other work of its kind ran on the device, had no
// room before: the path follows that, which is an inference, too.
//
// Where a thread is in no operator or call, the path follows another thread that launched work and
// is in one. Each nanosecond of a step belongs to exactly one segment of its path.
//
// A step begins when the step before is complete, or when its range on the host begins if that is
// later. It is complete at the end of its range and of all work that it launched. A profile without
// steps is one step.
package criticalpath
