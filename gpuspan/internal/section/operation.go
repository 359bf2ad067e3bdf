// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// public holds the type of package gpuspan for a value of this package, created once.
type public struct {
	once  sync.Once
	value any
}

// Get returns what create made at the first call.
func (p *public) Get(create func() any) any {
	p.once.Do(func() { p.value = create() })
	return p.value
}

// OperationConfig holds what is the same in each run of an operation.
type OperationConfig struct {
	Info       report.Info
	Direction  work.Direction
	Verbosity  settings.Verbosity
	Sync       settings.SyncMode    // zero: as the Profiler
	NoSpan     bool                 // in metrics and reports only
	Batch      bool                 // timed whether or not the span around it is sampled
	Print      io.Writer            // receives the report when an outermost section resolves
	PrintOnly  []string             // categories to print; none: all
	Attributes []attribute.KeyValue // on each span
}

// Operation is something that can be timed. It holds no measurements and works with any number of
// Profilers. A nil Operation does nothing.
type Operation struct {
	Public public // of package gpuspan
	id     uint32 // index into a Profiler's states
	Cfg    OperationConfig
	Attrs  []attribute.KeyValue // all that are on each span
	host   bool                 // work on the host: no events

	launch struct { // the operation's launches of graphs are a separate operation of the same name
		once sync.Once
		op   *Operation
	}
}

// operationIDs numbers operations, so that a Profiler finds its state of one by index instead of by
// hash.
var operationIDs atomic.Uint32

// NewOperation creates an operation of type section, unless an option sets another type.
func NewOperation(name string, opts ...func(*OperationConfig)) *Operation {
	if name = spanattr.ValidText(name); name == "" {
		name = "unnamed"
	}
	c := OperationConfig{
		Info:      report.Info{Name: name, Type: semconv.GPUOperationTypeSection},
		Verbosity: settings.VerbosityDefault,
	}
	for _, o := range opts {
		o(&c)
	}
	c.Info.Category, c.Info.ItemType = spanattr.ValidText(c.Info.Category), spanattr.ValidText(c.Info.ItemType)
	return newOperation(c)
}

func newOperation(c OperationConfig) *Operation {
	o := &Operation{id: operationIDs.Add(1) - 1, Cfg: c, host: c.Info.Type == semconv.GPUOperationTypeHost}
	o.Attrs = o.build()
	return o
}

func (o *Operation) Name() string {
	if o == nil {
		return ""
	}
	return o.Cfg.Info.Name
}

func (o *Operation) Info() report.Info {
	if o == nil {
		return report.Info{}
	}
	return o.Cfg.Info
}

// build creates the attributes that every span of the operation has. The name is the span's.
func (o *Operation) build() []attribute.KeyValue {
	kv := []attribute.KeyValue{semconv.GPUOperationTypeKey.String(o.Cfg.Info.Type)}
	kv = spanattr.AppendStated(kv, semconv.GPUOperationCategoryKey, o.Cfg.Info.Category)
	kv = spanattr.AppendStated(kv, semconv.GPUOperationItemTypeKey, o.Cfg.Info.ItemType)
	kv = spanattr.AppendStated(kv, semconv.GPUCopyDirectionKey, o.Cfg.Info.Direction)
	kv = spanattr.AppendStated(kv, semconv.GPUCopyHostMemoryKey, o.Cfg.Info.HostMemory)
	return spanattr.AppendValid(kv, o.Cfg.Attributes)
}

func (o *Operation) Start(ctx context.Context, s *Stream) Section { return s.Begin(ctx, o, FlagNone) }

func (o *Operation) Launch(ctx context.Context, s *Stream, f func()) {
	x := o.graph().Start(ctx, s)
	defer x.End()
	if f != nil {
		f()
	}
}

// graph returns the operation as a launch of a graph: the type is an attribute of metrics, so it
// cannot differ from run to run.
func (o *Operation) graph() *Operation {
	if o == nil || o.Cfg.Info.Type == semconv.GPUOperationTypeGraph {
		return o
	}
	o.launch.once.Do(func() {
		c := o.Cfg
		c.Info.Type = semconv.GPUOperationTypeGraph
		o.launch.op = newOperation(c)
	})
	return o.launch.op
}

// maxOperations bounds the operations of one profiler. A program that creates an operation per
// request would otherwise use memory without limit; operations beyond it share the state "(other)".
const maxOperations = 4096

const overflowName = "(other)"

// OpState is the state of one operation in one profiler. Fields written by goroutines that start
// sections are apart from those written by the polling thread, so that neither takes cache lines
// from the other.
type OpState struct {
	*Operation

	inner     shared[*Position] // within other sections
	Outermost Position          // as an outermost section

	// sections that took a slot, added by the polling thread when they are read; and all steps,
	// added without a slot when they end
	Timed work.Tally
}

func NewOpState(o *Operation) *OpState {
	st := &OpState{Operation: o}
	st.Outermost.State = st
	return st
}

// State finds the profiler's state of an operation: an index into a slice that is replaced, never
// changed.
func (p *Core) State(o *Operation) *OpState {
	if st := p.known(o); st != nil {
		return st
	}
	return p.register(o)
}

// known is like state, but never creates one; it is small enough to be inlined into the paths that
// only count.
func (p *Core) known(o *Operation) *OpState {
	if ops := *p.ops.Load(); int(o.id) < len(ops) {
		return ops[o.id]
	}
	return nil
}

func (p *Core) register(o *Operation) *OpState {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.ops.Load()
	if int(o.id) < len(old) && old[o.id] != nil {
		return old[o.id]
	}
	if p.opCount >= maxOperations {
		if p.overflow == nil {
			p.overflow = NewOpState(NewOperation(overflowName))
			p.opList.add(p.overflow)
		}
		p.CountMisuse(operationOverflow)
		return p.overflow
	}
	p.opCount++
	ops := make([]*OpState, max(len(old), int(o.id)+1))
	copy(ops, old)
	st := NewOpState(o)
	ops[o.id] = st
	p.opList.add(st)
	p.ops.Store(&ops)
	return st
}

// shared is a list that any goroutine reads, and that is appended to under the profiler's mutex.
// Readers have the shorter slices, so the array can be shared.
type shared[T any] struct{ list atomic.Pointer[[]T] }

func (s *shared[T]) all() []T {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (s *shared[T]) set(list []T) { s.list.Store(&list) }
func (s *shared[T]) add(v T)      { s.set(append(s.all(), v)) }

// Position is an operation at one position in the nesting of sections, so that the report's tree
// does not depend on sampling. Sections that are not timed count here too; each operation has one
// position as an outermost section, and one below each position in which it ran.
type Position struct {
	State  *OpState
	Parent *Position // nil: outermost
	depth  int

	untimed work.Tally // runs without a slot: unsampled, captured in full pools …

	// ended keeps the last tickets whose work was added, so that a second EndWith of an untimed
	// section adds nothing.
	ended [ticketRing]atomic.Int64

	children shared[*Position] // few: searched linearly
	chunked  atomic.Bool       // the runs are chunks of the section around them

	// goroutine of the exporter
	reported work.TallySnapshot // untimed runs that TakeUntimed returned
	Number   statistics.Node    // in the report; 0: unknown yet
}

const (
	// maxPositions bounds the positions of one profiler to half of what a statistics.Collector holds.
	// Sections beyond it count as outermost.
	maxPositions = 2048
	maxDepth     = 64 // recursions
	maxChildren  = 64 // each is visited
)

// ticketRing is how many sections at one position may end between two Ends of the same untimed
// section such that the second one is still recognized. A power of two.
const ticketRing = 64

// child returns the position of an operation within pl.
func (pl *Position) child(p *Core, st *OpState) *Position {
	for _, c := range pl.children.all() {
		if c.State == st {
			return c
		}
	}
	return pl.addChild(p, st)
}

func (pl *Position) addChild(p *Core, st *OpState) *Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	siblings := pl.children.all()
	for _, c := range siblings {
		if c.State == st {
			return c
		}
	}
	if len(p.positions.all()) >= maxPositions || len(siblings) >= maxChildren || pl.depth >= maxDepth {
		return &st.Outermost
	}
	c := &Position{State: st, Parent: pl, depth: pl.depth + 1}
	pl.children.add(c)
	st.inner.add(c)
	p.positions.add(c)
	return c
}

// TakeUntimed returns the untimed runs since the last call; false: none.
func (pl *Position) TakeUntimed() (work.TallySnapshot, bool) {
	now := pl.untimed.Load()
	since := now.Minus(&pl.reported)
	pl.reported = now
	return since, since != work.TallySnapshot{}
}

// Around returns the section around chunks, whose work is theirs; nil if there is none or it
// declares its own.
func (pl *Position) Around() *Position {
	if !pl.chunked.Load() || pl.Parent == nil || pl.Parent.untimed.Stated() {
		return nil
	}
	return pl.Parent
}

// run counts a section that is not timed.
func (pl *Position) run(p *Core) Section {
	return Section{nil, uint64(pl.untimed.Count.Add(1)), pl, p}
}

// countWork adds the work of a section that is not timed.
func (pl *Position) countWork(w *work.Work) {
	d := pl.State.Cfg.Direction
	w.Once(d)
	pl.untimed.Add(w, d)
}

// untimedCount returns how often the operation ran without being timed.
func (st *OpState) untimedCount() int64 {
	n := st.Outermost.untimed.Count.Load()
	for _, pl := range st.inner.all() {
		n += pl.untimed.Count.Load()
	}
	return n
}

// UntimedWork returns the work of untimed runs.
func (st *OpState) UntimedWork() work.TallySnapshot {
	sum := st.Outermost.untimed.Load()
	for _, pl := range st.inner.all() {
		sum.Add(pl.untimed.Load())
	}
	return sum
}
