// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"slices"
	"strings"
)

// Names interns strings: equal strings get one number, so that a record holds four bytes for a name
// of hundreds. Beyond its limit new names are all the number 0, an unknown name, and are counted.
type Names struct {
	index map[string]uint32
	list  []string
	bytes int
	limit int
	Over  int64 // names that were not kept
}

// newNames keeps at most limit bytes of distinct names.
func newNames(limit int) *Names {
	return &Names{index: map[string]uint32{}, list: []string{"(name not kept)"}, limit: limit}
}

// ID returns the number of a name. The string is copied when it is new, so the caller may reuse its
// memory.
func (n *Names) ID(name string) uint32 {
	if id, ok := n.index[name]; ok {
		return id
	}
	const overhead = 64 // map entry and headers
	if n.bytes+len(name)+overhead > n.limit {
		n.Over++
		return 0
	}
	n.bytes += len(name) + overhead
	name = strings.Clone(name)
	id := uint32(len(n.list))
	n.list = append(n.list, name)
	n.index[name] = id
	return id
}

// Bytes is like ID, for a name in a buffer.
func (n *Names) Bytes(name []byte) uint32 {
	if id, ok := n.index[string(name)]; ok {
		return id
	}
	return n.ID(string(name))
}

// Find returns the number of a name that is kept; 0 if it is not.
func (n *Names) Find(name string) uint32 { return n.index[name] }

// Name returns the name with a number that ID returned.
func (n *Names) Name(id uint32) string { return n.list[id] }

// Text returns the name with a number, empty for 0, which usually means none.
func (n *Names) Text(id uint32) string {
	if id == 0 {
		return ""
	}
	return n.list[id]
}

// Len returns a number above every number that ID returned.
func (n *Names) Len() int { return len(n.list) }

// Any reports whether some name has the part.
func (n *Names) Any(part string) bool {
	return n.AnyIs(func(s string) bool { return strings.Contains(s, part) })
}

// AnyIs reports whether is returns true for some name.
func (n *Names) AnyIs(is func(string) bool) bool { return slices.ContainsFunc(n.list, is) }
