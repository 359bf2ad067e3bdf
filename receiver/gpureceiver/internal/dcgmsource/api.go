// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package dcgmsource is the source `dcgm`: NVIDIA DCGM through its client library, standalone or embedded.
//
// What shapes the code:
//   - The client library is one connection for the whole process, without contexts and without cancellation. See
//     connection; the receiver calls a source from a goroutine that may block.
//   - After Init has failed because the library is absent, any other call ends the process. So every call goes through
//     a connection that was opened.
//   - Groups, field groups and watches die with the connection, and their numbers may then mean somebody else's. They
//     are all in a session, which is thrown away as a whole.
//   - A value counts when its status is 0, it is not blank (by type, with >=) and it is fresh. All three are checked.
//   - Fields are known by id: their names changed in DCGM 4.6.
package dcgmsource

import (
	"errors"
	"fmt"
	"strings"
)

// entityKind is the kind of a DCGM entity; the numbers are those of dcgm_field_entity_group_t.
type entityKind uint8

const (
	entityGPU             entityKind = 1
	entityGPUInstance     entityKind = 4
	entityComputeInstance entityKind = 5
)

// entity is a GPU, a GPU instance or a compute instance.
type entity struct {
	kind entityKind
	id   uint
}

// instance is one entry of the MIG hierarchy.
type instance struct {
	entity, parent entity
	gpuUUID        string
	gpuInstance    uint // NVML's number within the GPU
	compute        uint // NVML's number within the GPU instance
	slices         uint // of the profile
}

// rawValue is one value as DCGM has it. Which of i, f and s holds it says typ.
type rawValue struct {
	entity entity
	field  uint16
	typ    byte // 'i', 'd', 's' or 'b', a process; other types are passed without a value
	status int
	ts     int64 // µs since 1970, the host engine's clock
	i      int64 // of a process its number
	f      float64
	s      string
	more   int64 // of a process its memory in bytes
}

// api is the part of DCGM's client library that is used. Only a connection calls init and shutdown; nothing else is
// called without one.
type api interface {
	// init connects; target is "embedded", "host:port" or "unix:///path".
	init(target string) error
	shutdown() error
	gpus() ([]uint, error)
	// instances is the MIG hierarchy, empty without MIG.
	instances() ([]instance, error)
	// status is dcgmGetGpuStatus: 1 ok, 4 lost, 7 detached, …
	status(gpu uint) int
	// fieldType is the type of a field in the client library; 0 for a field that it does not know.
	fieldType(id uint16) byte
	// profilingFields are the profiling fields that a GPU supports; an error when it has none. An empty list without
	// an error means that the library does not say.
	profilingFields(gpu uint) ([]uint16, error)
	createGroup(name string, entities []entity) (uintptr, error)
	destroyGroup(group uintptr) error
	createFieldGroup(name string, fields []uint16) (uintptr, error)
	destroyFieldGroup(fieldGroup uintptr) error
	watch(group, fieldGroup uintptr, everyMicros int64, keepSeconds float64) error
	unwatch(group, fieldGroup uintptr) error
	// valuesSince calls fn for what is not older than the mark (µs, the host engine's clock) and returns the next mark.
	// The value is fn's for the call only. It costs two round trips and one more for each field of each entity, and a
	// buffer of 4 MiB for each on both sides. More than the library or readLimit takes is errTooMany.
	valuesSince(group, fieldGroup uintptr, mark int64, fn func(*rawValue)) (next int64, err error)
	// latest calls fn for the newest value of each field of each entity. It costs one round trip.
	latest(group, fieldGroup uintptr, fn func(*rawValue)) error
}

// errTooMany says that a backlog is larger than one read takes.
var errTooMany = errors.New("more values than one read takes")

// callError is a call that the library answered with an error code.
type callError struct {
	call string
	code int
	text string
}

func (e *callError) Error() string { return fmt.Sprintf("%s: %s", e.call, e.text) }

// Codes of the library, and their texts, which is all that go-dcgm passes on.
const (
	codeTimeout          = -11
	codeInsufficientSize = -31
	codeNotConnected     = -21

	textTimeout      = "imeout"
	textNotConnected = "onnection"
)

// says tells whether an error is of a code.
func says(err error, code int, text string) bool {
	if e, ok := errors.AsType[*callError](err); ok {
		return e.code == code
	}
	return err != nil && strings.Contains(err.Error(), text)
}

func timedOut(err error) bool     { return says(err, codeTimeout, textTimeout) }
func disconnected(err error) bool { return says(err, codeNotConnected, textNotConnected) }
func tooMany(err error) bool {
	e, ok := errors.AsType[*callError](err)
	return errors.Is(err, errTooMany) || ok && e.code == codeInsufficientSize
}
