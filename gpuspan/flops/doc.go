// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package flops counts what common operations compute and move, as [gpuspan.Work].
//
// # Conventions
//
// A multiply-add is two operations. Everything else is one operation for each application of an arithmetic operator or
// elementary function in the operation's definition: add, subtract, multiply, divide, compare, max, exp, log, tanh,
// erf, sqrt and rsqrt are one each, copies and type conversions none. For sparse operands only the values that are
// stored count, so that a rate compares with the dense peak. What an implementation does beyond the definition (padding
// to a tile, recomputation unless it is asked for) is not counted.
//
// Read and Written are the compulsory traffic: every operand read once and every result written once, in elements of
// the precision's size. Re-reading for want of cache is not in them, nor is what stays in cache.
//
// Counts are float64, exact up to 2⁵³ and to one part in 10¹⁵ beyond. A dimension of zero gives no work; a negative
// dimension, which can only be a mistake, gives the zero Work, which a section reads as "not stated". All functions
// allocate nothing, unless said otherwise.
package flops
