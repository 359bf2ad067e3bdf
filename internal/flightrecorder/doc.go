// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package flightrecorder reads dumps of PyTorch's flight recorder and finds the rank for which a
// job waits.
//
// Each rank of a job records its newest collectives in a ring, and writes them to a file when a
// collective times out or on request. Read reads such a file, a pickle or JSON, without executing
// anything in it. Analyze compares the files of all ranks:
//
//  1. It aligns the ranks by process group and the collective's sequence number. Other numbers in a dump (op_id,
//     record_id, the local number of a group) differ between healthy ranks.
//  2. A group hangs at the first collective that a rank has begun and not finished. The ranks that differ from the
//     majority there, have not entered it, or left no dump, are the ones that the others wait for.
//  3. A rank that is absent from one group because it waits in another group is not the cause. Analyze follows these
//     waits to the ranks that wait for no other rank.
//
// PyTorch's own analyzer (torch.distributed.flight_recorder, as of 2.15) takes the first rank of a
// group as the norm, reports every group that waits, and does not conclude anything about a rank
// without a dump.
package flightrecorder
