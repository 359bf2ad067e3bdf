// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// Node is a host range that a visitor keeps. Activities are attached to the nearest node around
// their launch.
type Node struct {
	Kind       event.Kind
	Start, End int64
	Name       uint32
	Parent     *Node // nil: this is the window
	Replaced   bool  // the work that its record states is not the operator's; see workOf
	Kept       any   // what the visitor keeps of the range

	released bool
	ref      *nodeRef // nil: not needed yet
}

// nodeRef refers to a node for long, as launches do: it drops the node when that is released, and
// leads to its ancestors.
type nodeRef struct {
	node  *Node // nil: released
	above *nodeRef
}

// live returns the nearest node that is not released, or else the window.
func (r *nodeRef) live() *Node {
	for r.node == nil {
		if up := r.above; up.node == nil {
			r.above = up.above // the next walk is shorter
		}
		r = r.above
	}
	return r.node
}

// Release declares the node complete: later activities are attached to its ancestors. The window
// stays, for events with no other ancestor.
func (n *Node) Release() {
	if n.released = true; n.Parent != nil && n.ref != nil {
		n.ref.node = nil
	}
}

// Released reports whether the node is complete.
func (n *Node) Released() bool { return n.released }

// reference returns the node's nodeRef. Few nodes launch anything, so it is made by the first
// launch.
func (n *Node) reference() *nodeRef {
	if n.ref != nil {
		return n.ref
	}
	n.ref = &nodeRef{}
	if n.Parent != nil {
		n.ref.above = n.Parent.reference()
	}
	if !n.released || n.Parent == nil {
		n.ref.node = n
	}
	return n.ref
}

// Live returns the node, or the nearest one around it that is not released.
func (n *Node) Live() *Node {
	for n.released && n.Parent != nil {
		n = n.Parent
	}
	return n
}
