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
	"sync"
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

// Types of a field.
const (
	typeInt    = 'i'
	typeDouble = 'd'
	typeString = 's'
	typeBinary = 'b'
)

// Blanks: any value from these on means "none", by kind (not found, not supported, no permission).
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

// number is the value as a double; false when it is blank or no number.
func (v *rawValue) number() (float64, bool) {
	switch v.typ {
	case typeInt:
		return float64(v.i), v.i < blankInt
	case typeDouble:
		return v.f, v.f < blankDouble // false for NaN
	}
	return 0, false
}

// text is the value as a string; false when it is blank or no string.
func (v *rawValue) text() (string, bool) {
	return v.s, v.typ == typeString && v.status == statusOK && !blankStrings[v.s]
}

// Embedded as a target runs the host engine inside this process.
const Embedded = "embedded"

// connection is the one connection that a process can have, shared by the sources in it. It counts its users, refuses
// a second target, and is given up only when the last user has let go: then the next one connects anew.
type connection struct {
	api api

	mu     sync.Mutex
	idle   sync.Cond // of mu: nothing runs that may block for ever
	users  int
	target string // of the connection, or of the attempt that runs
	broken bool
	busy   bool
}

func newConnection(a api) *connection {
	c := &connection{api: a}
	c.idle.L = &c.mu
	return c
}

// acquire connects to the target or joins the connection that is there. It waits for another source that connects to
// the same target, that disconnects, or that has not noticed yet that their connection is dead.
func (c *connection) acquire(target string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy && (c.target == target || c.target == "") || c.users > 0 && c.broken && c.target == target {
		c.idle.Wait()
	}
	switch {
	case (c.busy || c.users > 0) && c.target != target:
		return fmt.Errorf(
			"this process is connected to DCGM at %q, refused %q (its library has one connection for each process: "+
				"use one endpoint in all gpu receivers, or a second Collector)", c.target, target)
	case c.users > 0:
		c.users++
		return nil
	}
	c.target = target
	if err := c.blocking(func() error { return c.api.init(target) }); err != nil {
		return err
	}
	c.users, c.broken = 1, false
	return nil
}

// release lets go; broken says that the connection is known to be dead.
func (c *connection) release(broken bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = c.broken || broken
	if c.users--; c.users > 0 {
		return nil
	}
	c.target = "" // of nobody: whoever comes waits and connects anew
	return c.blocking(c.api.shutdown)
}

// blocking runs fn without the lock; mu is held before and after.
func (c *connection) blocking(fn func() error) error {
	c.busy = true
	c.mu.Unlock()
	err := fn()
	c.mu.Lock()
	c.busy = false
	c.idle.Broadcast()
	return err
}

// lost says whether another user found the connection dead.
func (c *connection) lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}
