// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package dcgmsource is the source `dcgm`: NVIDIA DCGM through its client library, standalone or
// embedded.
//
// What shapes the code:
//   - The client library has no contexts and no cancellation: a call can block for a minute, and connecting forever.
//     The receiver calls a source from a goroutine that may block.
//   - A watch belongs to a connection, an entity and a field: watching again replaces the interval, and the first
//     removal ends it, whichever group it names. So each source has its own connection, and no session watches a
//     field of an entity twice.
//   - Groups, field groups and watches end with the connection, and their numbers may be reused. They
//     are all in a session, which is thrown away as a whole.
//   - A value counts when its status is 0, it is not blank (by type, with >=) and it is fresh. All three are checked.
//   - Fields are known by id: their names changed in DCGM 4.6.
package dcgmsource

import (
	"errors"
	"fmt"
	"slices"
)

// entityKind is the kind of a DCGM entity; the numbers are from dcgm_field_entity_group_t.
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
	gpuInstance    uint // NVML's number within the GPU
	compute        uint // NVML's number within the GPU instance
	slices         uint // of the profile
}

// rawValue is one value in DCGM's form. typ states which of i, f and s holds it.
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
	parts  []instancePart
}

// instancePart is what an instance has of its GPU, as the driver reports it to the field of MIG
// attributes.
type instancePart struct{ gpuInstance, computeInstance, multiprocessors uint32 }

// api is the part of DCGM's client library that is used. Only init is called without a connection.
type api interface {
	// init connects; target is "embedded", "host:port" or "unix:///path".
	init(target string) error
	shutdown() error
	gpus() ([]uint, error)
	// instances returns the MIG hierarchy, empty without MIG.
	instances() ([]instance, error)
	// status is dcgmGetGpuStatus: 1 ok, 4 lost, 7 detached, …
	status(gpu uint) int
	// fieldType is the type of a field in the client library; 0 for a field that it does not know.
	fieldType(id uint16) byte
	// profilingFields returns the profiling fields that a GPU supports; an error if it has none. An
	// empty list without an error means that the library does not report them.
	profilingFields(gpu uint) ([]uint16, error)
	createGroup(name string, entities []entity) (uintptr, error)
	destroyGroup(group uintptr) error
	createFieldGroup(name string, fields []uint16) (uintptr, error)
	destroyFieldGroup(fieldGroup uintptr) error
	watch(group, fieldGroup uintptr, everyMicros int64, keepSeconds float64) error
	unwatch(group, fieldGroup uintptr) error
	// valuesSince calls fn for values that are not older than the mark (µs, the host engine's
	// clock) and returns the next mark. A value is valid during the call only. It costs two round
	// trips and one more for each field of each entity, and a buffer of 4 MiB for each on both
	// sides. More values than the library or readLimit accepts is errTooMany.
	valuesSince(group, fieldGroup uintptr, mark int64, fn func(*rawValue)) (next int64, err error)
	// latest calls fn for the newest value of each field of each entity. It costs one round trip.
	latest(group, fieldGroup uintptr, fn func(*rawValue)) error
}

// errTooMany means that a backlog is larger than one read returns.
var errTooMany = errors.New("more values than one read accepts")

// callError is a call for which the library returned an error code.
type callError struct {
	call string
	code int
	text string
}

func (e *callError) Error() string { return fmt.Sprintf("%s: %s", e.call, e.text) }

// Codes of the library.
const (
	codeNotSupported     = -6
	codeTimeout          = -11
	codeNotConnected     = -21
	codeInsufficientSize = -31
	codeModuleNotLoaded  = -33
)

// hasCode reports whether an error has one of the codes.
func hasCode(err error, codes ...int) bool {
	e, ok := errors.AsType[*callError](err)
	return ok && slices.Contains(codes, e.code)
}

func timedOut(err error) bool     { return hasCode(err, codeTimeout) }
func disconnected(err error) bool { return hasCode(err, codeNotConnected) }
func tooMany(err error) bool      { return errors.Is(err, errTooMany) || hasCode(err, codeInsufficientSize) }

// unsupported reports that a device of this kind has no profiling here, which is not a fault.
func unsupported(err error) bool { return hasCode(err, codeNotSupported, codeModuleNotLoaded) }

// Types of a field.
const (
	typeInt    = 'i'
	typeDouble = 'd'
	typeString = 's'
	typeBinary = 'b'
)

// Blanks: values from these on mean "none", by reason (not found, not supported, no permission).
const (
	blankInt    = int64(0x7ffffffffffffff0)
	blankDouble = 140737488355328.0
)

var blankStrings = map[string]bool{
	"<<<NULL>>>": true, "<<<NOT_FOUND>>>": true, "<<<NOT_SUPPORTED>>>": true, "<<<NOT_PERM>>>": true, "": true,
}

// Statuses of a value.
const (
	statusOK     = 0
	statusNoData = -14 // watched, no sample yet: the placeholder row of valuesSince
)

// number returns the value as a double; false if it is blank or not a number.
func (v *rawValue) number() (float64, bool) {
	switch v.typ {
	case typeInt:
		return float64(v.i), v.i < blankInt
	case typeDouble:
		return v.f, v.f < blankDouble // false for NaN
	}
	return 0, false
}

// text returns the value as a string; false if it is blank or not a string.
func (v *rawValue) text() (string, bool) {
	return v.s, v.typ == typeString && v.status == statusOK && !blankStrings[v.s]
}

// Embedded as a target runs the host engine inside this process.
const Embedded = "embedded"
