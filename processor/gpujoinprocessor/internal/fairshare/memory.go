// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// newNode makes a node within the budget; when that is used up the longest unchanged remembered one leaves. Nil: all
// are pending or have children.
func (d *Device) newNode(k Key) *node {
	for tries := 0; d.budget.used >= d.budget.Max; tries++ {
		n := d.at(d.remembered.first)
		if n == nil || tries == 8 {
			return nil
		}
		d.forget(n)
	}
	d.budget.used++
	n := d.budget.slab.take()
	n.key, n.kept = k, true
	d.nodes.add(n)
	return n
}

// remember keeps a placeholder or an ended node for the time limit, from now.
func (d *Device) remember(n *node) { d.remembered.touch(n, d.settled) }

// expire forgets what was not changed for too long.
func (d *Device) expire() {
	limit := d.settled - int64(d.limits.Remember)
	for n := d.at(d.remembered.first); n != nil && n.changed < limit; n = d.at(d.remembered.first) {
		d.forget(n)
	}
	d.free.forget(d.settled - int64(d.limits.Free))
}

// forget removes a remembered node. One with children stays; it is forgotten after them. So does one that is pinned.
func (d *Device) forget(n *node) {
	if n.kids > 0 || n.opened > 0 || n.pinned {
		d.remember(n)
		return
	}
	if !n.known && !n.met && n.below > 0 {
		d.totals.Orphans++
	}
	if parent := d.at(n.parent); parent != nil {
		parent.kids--
	}
	d.remembered.remove(n)
	d.nodes.remove(n)
	n.kept = false
	d.budget.used--
	d.budget.slab.give(n)
}

// node is that of a span, nil when there is none.
func (d *Device) node(k Key) *node { return d.nodes.find(k) }

func (d *Device) at(r ref) *node { return d.budget.slab.at(r) }
