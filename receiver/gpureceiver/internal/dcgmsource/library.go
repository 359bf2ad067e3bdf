// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// soname is DCGM's client library, which the loader finds by its path or by LD_LIBRARY_PATH.
const soname = "libdcgm.so.4"

// functions are the functions of the client library that a client calls, with the C types of
// dcgm_agent.h. They are looked up by name, so that a program neither needs cgo nor fails to start
// where DCGM is absent.
type functions struct {
	Init             func() int32
	Connect          func(address *byte, params *connectParams, handle *uintptr) int32
	Disconnect       func(handle uintptr) int32
	StartEmbedded    func(mode int32, handle *uintptr) int32
	StopEmbedded     func(handle uintptr) int32
	Entities         func(handle uintptr, kind int32, ids *uint32, n *int32, flags uint32) int32
	Hierarchy        func(handle uintptr, out *migHierarchy) int32
	Status           func(handle uintptr, gpu uint32, status *int32) int32
	FieldByID        func(id uint16) *fieldMeta
	MetricGroups     func(handle uintptr, out *metricGroups) int32
	GroupCreate      func(handle uintptr, kind int32, name *byte, group *uintptr) int32
	GroupAdd         func(handle, group uintptr, kind int32, id uint32) int32
	GroupDestroy     func(handle, group uintptr) int32
	FieldsCreate     func(handle uintptr, n int32, ids *uint16, name *byte, fields *uintptr) int32
	FieldsDestroy    func(handle, fields uintptr) int32
	Watch            func(handle, group, fields uintptr, every int64, keep float64, samples int32) int32
	Unwatch          func(handle, group, fields uintptr) int32
	UpdateAll        func(handle uintptr, wait int32) int32
	ValuesSince      func(handle, group, fields uintptr, since int64, next *int64, fn, data uintptr) int32
	LatestValues     func(handle, group, fields uintptr, fn, data uintptr) int32
	ErrorDescription func(code int32) string
}

// symbols returns the names of the functions, in the order in which a missing one is reported.
func (f *functions) symbols() []symbol {
	return []symbol{
		{"dcgmInit", &f.Init},
		{"dcgmConnect_v2", &f.Connect},
		{"dcgmDisconnect", &f.Disconnect},
		{"dcgmStartEmbedded", &f.StartEmbedded},
		{"dcgmStopEmbedded", &f.StopEmbedded},
		{"dcgmGetEntityGroupEntities", &f.Entities},
		{"dcgmGetGpuInstanceHierarchy", &f.Hierarchy},
		{"dcgmGetGpuStatus", &f.Status},
		{"DcgmFieldGetById", &f.FieldByID},
		{"dcgmProfGetSupportedMetricGroups", &f.MetricGroups},
		{"dcgmGroupCreate", &f.GroupCreate},
		{"dcgmGroupAddEntity", &f.GroupAdd},
		{"dcgmGroupDestroy", &f.GroupDestroy},
		{"dcgmFieldGroupCreate", &f.FieldsCreate},
		{"dcgmFieldGroupDestroy", &f.FieldsDestroy},
		{"dcgmWatchFields", &f.Watch},
		{"dcgmUnwatchFields", &f.Unwatch},
		{"dcgmUpdateAllFields", &f.UpdateAll},
		{"dcgmGetValuesSince_v2", &f.ValuesSince},
		{"dcgmGetLatestValues_v2", &f.LatestValues},
		{"errorString", &f.ErrorDescription},
	}
}

type symbol struct {
	name string
	fn   any
}

// loaded is the client library of this process. It stays loaded: its threads may still run after
// the last connection.
var loaded struct {
	mu        sync.Mutex
	functions *functions
	embedded  bool // the one embedded engine of the process is in use
}

// load returns the functions of the client library. A library that is absent now can be there at
// the next call.
func load() (*functions, error) {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	if loaded.functions != nil {
		return loaded.functions, nil
	}
	runtime.LockOSThread() // the loader keeps the reason of a failure for the thread
	defer runtime.UnlockOSThread()
	library, err := purego.Dlopen(soname, purego.RTLD_LAZY|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("DCGM's client library is missing: %w (install datacenter-gpu-manager-4-core): %w", err,
			gpudata.ErrUnavailable)
	}
	f := &functions{}
	var missing []string
	for _, s := range f.symbols() {
		address, err := purego.Dlsym(library, s.name)
		if err != nil {
			missing = append(missing, s.name)
			continue
		}
		purego.RegisterFunc(s.fn, address)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("DCGM's client library %s lacks %s (use DCGM 4.0 or later)", soname,
			strings.Join(missing, ", "))
	}
	if code := f.Init(); code != 0 {
		return nil, f.check("dcgmInit", code)
	}
	loaded.functions = f
	return f, nil
}

// check returns the error that a code means, nil for 0.
func (f *functions) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return &callError{call: call, code: int(code), text: f.ErrorDescription(code)}
}

// client is a connection to a host engine. Each source has its own: the host engine keeps watches
// by connection, entity and field, so that two sources on one connection would change and remove
// each other's watches.
type client struct {
	*functions
	handle   uintptr
	embedded bool
	values   []rawValue    // of the present read
	mig      *migHierarchy // of the last call: 70 KiB
}

func newClient() api { return &client{} }

// modeAuto lets the embedded engine sample by itself.
const modeAuto = 1

func (c *client) init(target string) (err error) {
	if c.functions, err = load(); err != nil {
		return err
	}
	if target == Embedded {
		return c.start()
	}
	address, unix := strings.CutPrefix(target, "unix://")
	params := connectParams{version: version[connectParams](2)}
	if unix {
		params.unix = 1
	}
	if err := c.check("dcgmConnect_v2", c.Connect(cString(address), &params, &c.handle)); err != nil {
		return fmt.Errorf("cannot reach DCGM at %q: %w", target, err)
	}
	return nil
}

// start runs the embedded engine, of which a process has one.
func (c *client) start() error {
	loaded.mu.Lock()
	busy := loaded.embedded
	loaded.embedded = true
	loaded.mu.Unlock()
	if busy {
		return fmt.Errorf("an embedded DCGM already runs in this process for another gpu receiver " +
			"(use one receiver, or let all of them connect to an nv-hostengine)")
	}
	c.embedded = true
	if err := c.check("dcgmStartEmbedded", c.StartEmbedded(modeAuto, &c.handle)); err != nil {
		c.stopped()
		return fmt.Errorf("cannot start an embedded DCGM: %w", err)
	}
	return nil
}

// stopped lets another receiver start the embedded engine.
func (c *client) stopped() {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	loaded.embedded, c.embedded = false, false
}

func (c *client) shutdown() error {
	if c.embedded {
		defer c.stopped()
		return c.check("dcgmStopEmbedded", c.StopEmbedded(c.handle))
	}
	return c.check("dcgmDisconnect", c.Disconnect(c.handle))
}

func (c *client) gpus() ([]uint, error) {
	var ids [maxEntities]uint32
	n := int32(len(ids))
	if err := c.check("dcgmGetEntityGroupEntities", c.Entities(c.handle, int32(entityGPU), &ids[0], &n, 0)); err != nil {
		return nil, err
	}
	list := make([]uint, min(int(n), len(ids)))
	for i := range list {
		list[i] = uint(ids[i])
	}
	return list, nil
}

func (c *client) instances() ([]instance, error) {
	if c.mig == nil {
		c.mig = &migHierarchy{}
	}
	h := c.mig
	h.version, h.count = version[migHierarchy](2), 0
	if err := c.check("dcgmGetGpuInstanceHierarchy", c.Hierarchy(c.handle, h)); err != nil {
		return nil, err
	}
	list := make([]instance, min(int(h.count), len(h.list)))
	for i := range list {
		x := &h.list[i]
		list[i] = instance{
			entity:      entity{entityKind(x.entity.kind), uint(x.entity.id)},
			parent:      entity{entityKind(x.parent.kind), uint(x.parent.id)},
			gpuInstance: uint(x.gpuInstance),
			compute:     uint(x.computeInstance),
			slices:      uint(x.slices),
		}
	}
	return list, nil
}

func (c *client) status(gpu uint) int {
	var status int32
	_ = c.Status(c.handle, uint32(gpu), &status)
	return int(status)
}

func (c *client) fieldType(id uint16) byte {
	// An ID between two known ones has an empty entry.
	if meta := c.FieldByID(id); meta != nil && meta.id == id {
		return meta.typ
	}
	return 0
}

func (c *client) profilingFields(gpu uint) ([]uint16, error) {
	g := &metricGroups{version: version[metricGroups](3), gpu: uint32(gpu)}
	if err := c.check("dcgmProfGetSupportedMetricGroups", c.MetricGroups(c.handle, g)); err != nil {
		return nil, err
	}
	var fields []uint16
	for _, x := range g.list[:min(int(g.n), len(g.list))] {
		fields = append(fields, x.fields[:min(int(x.n), len(x.fields))]...)
	}
	return fields, nil
}

// emptyGroup is the type of a group that has no entity at first.
const emptyGroup = 1

func (c *client) createGroup(name string, entities []entity) (group uintptr, err error) {
	if err := c.check("dcgmGroupCreate", c.GroupCreate(c.handle, emptyGroup, cString(name), &group)); err != nil {
		return 0, err
	}
	for _, e := range entities {
		if err := c.check("dcgmGroupAddEntity", c.GroupAdd(c.handle, group, int32(e.kind), uint32(e.id))); err != nil {
			_ = c.GroupDestroy(c.handle, group)
			return 0, err
		}
	}
	return group, nil
}

func (c *client) destroyGroup(group uintptr) error {
	return c.check("dcgmGroupDestroy", c.GroupDestroy(c.handle, group))
}

func (c *client) createFieldGroup(name string, fields []uint16) (handle uintptr, err error) {
	ids := slices.Clone(fields)
	code := c.FieldsCreate(c.handle, int32(len(ids)), &ids[0], cString(name), &handle)
	return handle, c.check("dcgmFieldGroupCreate", code)
}

func (c *client) destroyFieldGroup(fieldGroup uintptr) error {
	return c.check("dcgmFieldGroupDestroy", c.FieldsDestroy(c.handle, fieldGroup))
}

func (c *client) watch(group, fieldGroup uintptr, everyMicros int64, keepSeconds float64) error {
	if err := c.check("dcgmWatchFields", c.Watch(c.handle, group, fieldGroup, everyMicros, keepSeconds, 0)); err != nil {
		return err
	}
	// The first read then has values of all fields; if a host engine does not wait, it is only a
	// later one.
	_ = c.UpdateAll(c.handle, 1)
	return nil
}

func (c *client) unwatch(group, fieldGroup uintptr) error {
	return c.check("dcgmUnwatchFields", c.Unwatch(c.handle, group, fieldGroup))
}

// cString returns s with a 0 byte after it.
func cString(s string) *byte { return &append([]byte(s), 0)[0] }

// New returns the source.
func New(set Settings) gpudata.Source { return newSource(set, newClient()) }
