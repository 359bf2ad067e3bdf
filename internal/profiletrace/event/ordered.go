// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

// Ordered is a heap.Interface: the smallest element is first.
type Ordered[T interface{ Less(than T) bool }] []T

func (q Ordered[T]) Len() int           { return len(q) }
func (q Ordered[T]) Less(i, j int) bool { return q[i].Less(q[j]) }
func (q Ordered[T]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push appends an element. Callers use heap.Push, which restores the order.
func (q *Ordered[T]) Push(x any) { *q = append(*q, x.(T)) }

// Pop removes the last element and returns it. Callers use heap.Pop, which moves the smallest
// element there.
func (q *Ordered[T]) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
