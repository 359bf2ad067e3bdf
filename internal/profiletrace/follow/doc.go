// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package follow reads files that match patterns, once or as they appear: each once, and at least
// once over a kill, which can come between a batch and the note that it was taken. A batch that
// comes again has the same ids.
//
// A file is read when its size and time of change stood still for a while, so that one that is
// being written waits; one that appears by an atomic rename is complete and only waits that
// long. Files are polled, not watched: profiler files are often on network file systems, where
// notifications do not arrive.
//
// What was read is remembered by path, size and time of change, in a storage extension where one is
// given. A file that changes after it was read is read again; one that is gone is forgotten after
// an hour, since its file system may only be away. While a file is read, the number of batches that
// the next consumer took is remembered too: reading is deterministic, so that after a restart those
// are skipped.
package follow
