// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

// ordered is a heap.Interface: the smallest element is first.
type ordered[T interface{ less(than T) bool }] []T

func (q ordered[T]) Len() int           { return len(q) }
func (q ordered[T]) Less(i, j int) bool { return q[i].less(q[j]) }
func (q ordered[T]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *ordered[T]) Push(x any)        { *q = append(*q, x.(T)) }
func (q *ordered[T]) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
