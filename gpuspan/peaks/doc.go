// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package peaks is the one table of device models: what a GPU can do at best, by the vendors' own data sheets.
//
// Everything that compares a rate with a roof reads it: the in-process report, the gpu receiver
// (gpu.memory.bandwidth.limit, gpu.flop.rate.limit) and the gpu_derive processor. It imports the standard library only.
//
// What a row holds, and what it does not:
//
//   - FLOP rates are dense, at boost clock. Vendors quote the rate with 2:4 structured sparsity, which is twice as
//     high; those figures are halved here.
//   - The rate of a precision is that of the fastest engine that computes in it. So on NVIDIA fp32 is the vector
//     units (tensor cores round the operands: that is tf32), fp64 the FP64 tensor cores where the chip has them; on AMD
//     fp32 and fp64 are the matrix cores. On GeForce cards fp16 is with fp16 accumulation, bf16 with fp32
//     accumulation, which those cards do at half the rate.
//   - A device is what the driver calls one: an MI250X is two devices, and its row is one of the two dies.
//   - Links are one direction. Data sheets give NVLink and Infinity Fabric as the sum of both.
//   - A zero field is unknown, never "none at all". What is unknown is not compared with.
//
// A power-capped device never reaches its boost clock, so the share of peak that it reaches is below 1 even when its
// engines never wait. That is what a share of the data sheet means; it is not corrected.
package peaks
