// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Kind is the kind of a frame.
type Kind uint8

// Kinds of frames, from the root to the leaf.
const (
	Service  Kind = iota
	Route         // a request, named by its server
	Step          // of a loop
	Range         // any other span of the host
	Module        // of a neural network
	Python        // a frame of a Python stack
	Operator      // of a framework
	Section       // timed on a device
	Kernel        // or collective, memset, graph
	Copy
	Idle
)

var kindNames = [...]string{
	"service", "route", "step", "range", "module", "python", "operator", "section", "kernel", "copy", "idle",
}

// String returns the kind's name.
func (k Kind) String() string { return kindNames[k] }

// Frame is one level of a stack. Equal frames are mostly, but not always, one pointer.
type Frame struct {
	Kind Kind
	Name string // short
	Full string // name in the source; "" if it is Name
}

// slot returns a number below slots that few frames share.
func (f *Frame) slot() int {
	n := 7*len(f.Name) + int(f.Kind)
	if len(f.Name) > 0 {
		n += 3*int(f.Name[0]) + 5*int(f.Name[len(f.Name)-1])
	}
	return n % slots
}

// Labels distinguish samples of one stack. Unknown values are "", Rank is -1.
type Labels struct {
	Device   string // hw.id
	Model    string // hw.model
	Phase    string // gpu.operation.category
	Throttle string // the first of gpu.throttle.reasons
	State    string // gpu.activity.state of idle time
	Rank     int64  // gpu.job.rank
}

// Source is the resource that samples belong to.
type Source struct{ Service, Namespace, Version string }

// Stack is a frame with its ancestors. Equal stacks are mostly, but not always, one pointer.
type Stack struct {
	Up    *Stack // nil for the root
	Frame *Frame
	depth int32
}

// Frames returns the frames from the root to the leaf. It appends to list.
func (s *Stack) Frames(list []*Frame) []*Frame {
	n := len(list) + int(s.depth)
	for len(list) < n {
		list = append(list, nil)
	}
	for ; s != nil; s = s.Up {
		n--
		list[n] = s.Frame
	}
	return list
}

// maxName bounds the text of a frame, in bytes.
const maxName = 1024

// newFrame returns the frame of a name in the source's form, and of the full name if the source
// knows that, too.
func newFrame(k Kind, name, full string) *Frame {
	f := &Frame{Kind: k}
	if k == Kernel {
		full = demangled(full)
		if strings.HasPrefix(name, "_Z") || full == "" && strings.ContainsAny(name, "<(") {
			full, name = demangled(name), shortened(demangled(name))
		}
	}
	if f.Name = frameText(name); full != name {
		f.Full = frameText(full)
	}
	return f
}

// frameText bounds a text and makes it valid UTF-8, which protocol buffers require. The result
// shares no memory with s.
func frameText(s string) string {
	if len(s) > maxName {
		s = spanfacts.Truncate(s, maxName) + "…"
	}
	return strings.Clone(strings.ToValidUTF8(s, "\uFFFD"))
}

func demangled(name string) string {
	if !strings.HasPrefix(name, "_Z") || len(name) > 4*maxName {
		return name
	}
	return demangle.Filter(name)
}

// shortened returns the name of a C++ function without return type, namespaces, template arguments
// and parameters. Names with brackets that do not match are returned as they are.
func shortened(name string) string {
	s := strings.ReplaceAll(name, "(anonymous namespace)", "anon")
	var b strings.Builder
	depth := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '(' && depth == 0:
			if out := b.String(); out != "" {
				return out
			}
			return name
		case c == '<':
			depth++
		case c == '>' && i > 0 && s[i-1] != '-':
			if depth--; depth < 0 {
				return name
			}
		case depth > 0:
		case c == ' ', c == ':':
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	if depth != 0 || b.Len() == 0 {
		return name
	}
	return b.String()
}

// generations keeps values under keys in bounded memory: when the newer half is full, it becomes
// the older half, which is dropped. Keys in use move to the newer half.
type generations[K comparable, V any] struct {
	newer, older map[K]V
	max          int // of a half
}

func (g *generations[K, V]) get(k K) (v V, ok bool) {
	if v, ok = g.newer[k]; ok {
		return v, true
	}
	if v, ok = g.older[k]; ok {
		g.put(k, v)
	}
	return v, ok
}

func (g *generations[K, V]) put(k K, v V) {
	switch {
	case g.newer == nil:
		g.newer = make(map[K]V)
	case len(g.newer) >= g.max && g.older == nil:
		g.older, g.newer = g.newer, make(map[K]V, g.max)
	case len(g.newer) >= g.max:
		g.older, g.newer = g.newer, g.older // its memory is reused
		clear(g.newer)
	}
	g.newer[k] = v
}
