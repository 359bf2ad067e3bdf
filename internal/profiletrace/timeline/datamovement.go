// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// Move is the kind of a kernel that only moves bytes on the device.
type Move uint8

// Moves.
const (
	MovesNothing Move = iota // it computes
	MovesLayout              // to another order of the dimensions
	MovesType                // to another type of elements
	MovesJoin                // to a position beside others, or within a border
	MovesCopy                // as they are
	MovesFill                // writes one value
	MoveCount
)

// Role is a kernel's role in attention that is computed in parts: a batched product computes the
// scores, a softmax follows, and another batched product uses them. The backward pass is similar.
type Role uint8

// Roles.
const (
	RoleOther   Role = iota
	RoleProduct      // a batched product of matrices
	RoleSoftmax
	RoleEnds // a plain product, a selection or fused attention, which is never between the two products
)
