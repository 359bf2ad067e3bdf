// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvtx

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// envLibrary is the variable that every NVTX client reads.
const envLibrary = "NVTX_INJECTION64_PATH"

// Numbers of the NVTX v3 interface.
const (
	version = 3

	tableCallbacks = 1 // the argument of getExportTable
	tableVersion   = 3

	moduleCore  = 1
	moduleCore2 = 5
	entries     = 16 // of either module's table, the first being unused

	initializeInjection = "InitializeInjectionNvtx2"
)

// module is a function table in NVTX's form: pointers to slots, into which the tool writes its
// functions. The memory belongs to Go, does not move, and is kept forever, since the tool may write
// to it at any time.
type module struct {
	slots [entries]uintptr
	table [entries + 1]uintptr // table[i] is the address of slots[i]; nil first and last
}

func (m *module) init() {
	for i := 1; i < entries; i++ {
		m.table[i] = dl.Address(&m.slots[i])
	}
}

// client is one attachment to a tool.
type client struct {
	core, core2 module

	callbacks struct{ size, getTable uintptr }
	version   struct {
		size       uintptr
		version    uint32
		_          uint32
		setVersion uintptr
	}
}

// Attachments belong to the process, as a tool does, and their memory to the tool: a second Open
// finds the first's.
var (
	attachMu sync.Mutex
	clients  = map[string]*client{}
	// current is the client that the callbacks serve. NVTX's callbacks carry no context; tools call
	// them while they are initialized.
	current *client

	callbacksOnce                           sync.Once
	getExportTable, getTable, setInjVersion uintptr
)

// attach loads a tool and lets it fill in a client's tables. nil without error: no tool is named.
func attach(path string) (*client, error) {
	path = cmp.Or(path, os.Getenv(envLibrary))
	if path == "" {
		return nil, nil
	}
	attachMu.Lock()
	defer attachMu.Unlock()
	if c, ok := clients[path]; ok {
		return c, nil
	}
	lib, err := dl.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot load the NVTX tool (%s): %w", envLibrary, err)
	}
	start := lib.Lookup(initializeInjection)
	if start == 0 {
		return nil, fmt.Errorf("cannot attach the NVTX tool %s: it lacks %s", path, initializeInjection)
	}
	callbacksOnce.Do(makeCallbacks)
	c := &client{}
	c.core.init()
	c.core2.init()
	c.callbacks.size, c.callbacks.getTable = unsafe.Sizeof(c.callbacks), getTable
	c.version.size, c.version.version, c.version.setVersion = unsafe.Sizeof(c.version), version, setInjVersion
	current = c
	clients[path] = c // even if it is refused: the tool has seen the tables
	if start.Call(getExportTable) == 0 {
		c.core2.slots = [entries]uintptr{}
		return nil, errors.New("cannot attach the NVTX tool " + path + ": it refused")
	}
	return c, nil
}

// attached reports whether a tool accepted ranges of this process.
func attached() bool {
	attachMu.Lock()
	defer attachMu.Unlock()
	for _, c := range clients {
		if c.fn(domainRangeStartEx) != 0 {
			return true
		}
	}
	return false
}

// makeCallbacks makes the three C functions that tools call; they are never freed, so there is one
// set for all clients.
func makeCallbacks() {
	getExportTable = purego.NewCallback(func(id uint32) uintptr {
		switch id {
		case tableCallbacks:
			return dl.Address(&current.callbacks)
		case tableVersion:
			return dl.Address(&current.version)
		}
		return 0
	})
	getTable = purego.NewCallback(func(id int32, table *uintptr, size *uint32) int32 {
		var m *module
		switch id {
		case moduleCore:
			m = &current.core
		case moduleCore2:
			m = &current.core2
		default:
			return 0
		}
		if table != nil {
			*table = dl.Address(&m.table[0])
		}
		if size != nil {
			*size = entries
		}
		return 1
	})
	setInjVersion = purego.NewCallback(func(uint32) {}) // what the tool was built for
}

func (c *client) fn(i int) dl.Func {
	if c == nil {
		return 0
	}
	return dl.Func(atomic.LoadUintptr(&c.core2.slots[i]))
}
