// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// ModuleTree holds the modules and annotations of the host, nested as they ran. Nodes are what the
// file names: Layer_0, Layer_1 and so on. Groups merge the nodes that differ in numbers only, with
// everything below them, so that all layers of a model are one row. The zero value is ready.
type ModuleTree struct {
	nodes    []moduleNode  // by number, minus 1
	groups   []moduleGroup // likewise
	nodeOf   map[[2]uint32]uint32
	groupOf  map[moduleGroup]uint32
	general  []string // names without numbers, by number
	generals map[string]uint32
	named    map[uint32]uint32 // number of the general name, by name
}

type moduleNode struct {
	parent, group uint32 // 0: none
	name          uint32 // 0: of several names, beyond the limit
	calls         int64
}

type moduleGroup struct{ parent, name uint32 }

// Limits of a tree: beyond the first, nodes of one group are not distinguished, beyond the second,
// ranges count for the range around them.
const (
	maxModuleNodes  = 1 << 15
	maxModuleGroups = 1 << 12
)

// modulePrefix begins the names of PyTorch's modules.
const modulePrefix = "nn.Module: "

// Enter returns the node of a range of this name within a node, and counts a call of it; 0 is
// outside of all.
func (t *ModuleTree) Enter(in, name uint32, text func(uint32) string) uint32 {
	at := t.Node(in, name, text)
	if at != in {
		t.nodes[at-1].calls++
	}
	return at
}

// Node is like Enter, without counting.
func (t *ModuleTree) Node(in, name uint32, text func(uint32) string) uint32 {
	at, ok := t.nodeOf[[2]uint32{in, name}]
	if !ok {
		at = t.add(in, name, text)
	}
	if at == 0 {
		return in
	}
	return at
}

func (t *ModuleTree) add(in, name uint32, text func(uint32) string) uint32 {
	if t.nodeOf == nil {
		t.nodeOf, t.groupOf = map[[2]uint32]uint32{}, map[moduleGroup]uint32{}
		t.generals, t.named = map[string]uint32{}, map[uint32]uint32{}
	}
	g := moduleGroup{name: t.generalOf(name, text)}
	if in > 0 {
		g.parent = t.nodes[in-1].group
	}
	group, ok := t.groupOf[g]
	if !ok {
		if len(t.groups) >= maxModuleGroups {
			return 0
		}
		t.groups = append(t.groups, g)
		group = uint32(len(t.groups))
		t.groupOf[g] = group
	}
	key, parent := [2]uint32{in, name}, in
	if len(t.nodes) >= maxModuleNodes {
		key, name, parent = [2]uint32{1<<31 | group}, 0, t.sharedNode(g.parent)
		if at, ok := t.nodeOf[key]; ok {
			return at
		}
	}
	t.nodes = append(t.nodes, moduleNode{parent: parent, group: group, name: name})
	t.nodeOf[key] = uint32(len(t.nodes))
	return uint32(len(t.nodes))
}

// sharedNode returns a node of the group; 0 is of group 0.
func (t *ModuleTree) sharedNode(group uint32) uint32 {
	if group == 0 {
		return 0
	}
	key := [2]uint32{1<<31 | group}
	if at, ok := t.nodeOf[key]; ok {
		return at
	}
	i := slices.IndexFunc(t.nodes, func(p moduleNode) bool { return p.group == group })
	t.nodeOf[key] = uint32(i + 1)
	return uint32(i + 1)
}

func (t *ModuleTree) generalOf(name uint32, text func(uint32) string) uint32 {
	if id, ok := t.named[name]; ok {
		return id
	}
	s := general(text(name))
	id, ok := t.generals[s]
	if !ok {
		id = uint32(len(t.general))
		t.general = append(t.general, s)
		t.generals[s] = id
	}
	t.named[name] = id
	return id
}

// general returns a name without its numbers: the class of a module, or an annotation with an
// asterisk for each number.
func general(name string) string {
	if class, ok := strings.CutPrefix(name, modulePrefix); ok {
		if i := strings.LastIndexByte(class, '_'); i > 0 && strings.Trim(class[i+1:], "0123456789") == "" {
			class = class[:i]
		}
		return class
	}
	var b strings.Builder
	digits := false
	for _, c := range name {
		digit := c >= '0' && c <= '9'
		switch {
		case !digit:
			b.WriteRune(c)
		case !digits:
			b.WriteByte('*')
		}
		digits = digit
	}
	return b.String()
}

// moduleSum is the time of one node, without those within it.
type moduleSum struct {
	time, backward, idle time.Duration
	kernels              int64
	flops                float64
}

func (s *moduleSum) add(o *moduleSum) {
	s.time, s.backward, s.idle = s.time+o.time, s.backward+o.backward, s.idle+o.idle
	s.kernels, s.flops = s.kernels+o.kernels, s.flops+o.flops
}

// moduleOf returns the sum of a node.
func (d *Device) moduleOf(node uint32) *moduleSum {
	if d.lastModule != nil && d.lastNode == node {
		return d.lastModule
	}
	s := d.modules[node]
	if s == nil {
		s = &moduleSum{}
		d.modules[node] = s
	}
	d.lastNode, d.lastModule = node, s
	return s
}

// Module is a module or annotation of the host, or several that differ in numbers only, with
// everything within it. The times of the outermost ones add up to the window.
type Module struct {
	Name      string           `json:"name"`
	Depth     int              `json:"depth,omitempty"`
	Calls     int64            `json:"calls,omitempty"`
	Instances int              `json:"instances,omitempty"`  // of several: how many
	Kernels   int64            `json:"kernels"`              // and copies
	Time      time.Duration    `json:"time_ns"`              // of the window, in which its work ran
	Backward  time.Duration    `json:"backward_ns,omitzero"` // of Time, in the backward pass
	Idle      time.Duration    `json:"idle_ns"`              // before its work
	FLOPs     float64          `json:"flops,omitzero"`
	FLOPRate  float64          `json:"flops_per_second,omitzero"` // over Time
	Each      []ModuleInstance `json:"each,omitempty"`            // of several, in the order in which they began
}

// ModuleInstance is one of the ranges that a Module merges.
type ModuleInstance struct {
	Name string        `json:"name"`
	Time time.Duration `json:"time_ns"`
	Idle time.Duration `json:"idle_ns"`
}

// Limits of the list of modules. What is omitted is part of the rows around it.
const (
	maxModules       = 300
	maxInstances     = 128
	leastModuleShare = 0.001 // of the window
)

// NoModule is the name of the work that no module or annotation is around.
const NoModule = "(outside of modules and annotations)"

// moduleList returns the modules, each before those within it, the longest first, and how many more
// there are.
func (d *Device) moduleList(t *ModuleTree, name func(uint32) string, window time.Duration) (list []Module, more int) {
	if t == nil || len(t.nodes) == 0 {
		return nil, 0
	}
	nodes, groups := make([]moduleSum, len(t.nodes)+1), make([]moduleSum, len(t.groups)+1)
	for at, s := range d.modules {
		nodes[at].add(s)
	}
	for at := len(t.nodes); at > 0; at-- { // those within a node come after it
		p := t.nodes[at-1]
		groups[p.group].add(d.moduleOrNone(uint32(at)))
		nodes[p.parent].add(&nodes[at])
	}
	below := make([][]uint32, len(t.groups)+1)
	for g := len(t.groups); g > 0; g-- {
		parent := t.groups[g-1].parent
		groups[parent].add(&groups[g])
		below[parent] = append(below[parent], uint32(g))
	}
	within := make([][]uint32, len(t.groups)+1)
	for i, p := range t.nodes {
		within[p.group] = append(within[p.group], uint32(i+1))
	}
	var put func(group uint32, depth int)
	put = func(group uint32, depth int) {
		next := below[group]
		slices.SortFunc(next, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(groups[b].time+groups[b].idle, groups[a].time+groups[a].idle), cmp.Compare(a, b))
		})
		for _, g := range next {
			s := &groups[g]
			if len(list) >= maxModules || float64(s.time+s.idle) < leastModuleShare*float64(window) {
				if s.kernels > 0 {
					more++
				}
				continue
			}
			list = append(list, t.module(g, depth, s, within[g], nodes, name))
			put(g, depth+1)
		}
	}
	put(0, 0)
	if rest := d.moduleOrNone(0); len(list) > 0 && rest.kernels > 0 {
		list = append(list, rest.module(NoModule))
	}
	return list, more
}

func (d *Device) moduleOrNone(node uint32) *moduleSum {
	if s := d.modules[node]; s != nil {
		return s
	}
	return &moduleSum{}
}

func (s *moduleSum) module(name string) Module {
	m := Module{Name: name, Kernels: s.kernels, Time: s.time, Backward: s.backward, Idle: s.idle, FLOPs: s.flops}
	if s.flops > 0 && s.time > 0 {
		m.FLOPRate = s.flops / s.time.Seconds()
	}
	return m
}

func (t *ModuleTree) module(
	group uint32, depth int, s *moduleSum, within []uint32, nodes []moduleSum, name func(uint32) string,
) Module {
	m := s.module(t.general[t.groups[group-1].name])
	m.Depth = depth
	at := map[string]int{}
	var each []ModuleInstance
	for _, i := range within {
		p := &t.nodes[i-1]
		m.Calls += p.calls
		text := "others"
		if p.name != 0 {
			text = strings.TrimPrefix(name(p.name), modulePrefix)
		}
		k, ok := at[text]
		if !ok {
			k = len(each)
			at[text] = k
			each = append(each, ModuleInstance{Name: text})
		}
		each[k].Time += nodes[i].time
		each[k].Idle += nodes[i].idle
	}
	switch {
	case len(each) > 1:
		m.Instances = len(each)
		m.Each = each[:min(maxInstances, len(each))]
	case strings.Contains(m.Name, "*"):
		m.Name = each[0].Name
	}
	return m
}
