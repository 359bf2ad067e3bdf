// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// The ring: a file format in shared memory that a captured process writes and a Collector reads.
//
//   0                8192 (offsets of the other parts are in the header)
//   ┌────────────────┬──────────────┬─────────────┬─────────────────────────┐
//   │ header         │ contexts     │ names       │ records                 │
//   └────────────────┴──────────────┴─────────────┴─────────────────────────┘
//
// Before the first window only the header is allocated.
//
// Numbers have the machine's byte order, which is little-endian on every machine with CUDA. One file for each process,
// in the folder OTELGPU_CAPTURE_DIR, named <pid>-<creation, ns>.ring. The process locks the file's first byte (POSIX)
// while it lives: a ring whose lock is free has no writer. A forked child has no lock.
//
// records is a ring of records_capacity (a power of two) slots of record_size bytes. The writer stores a record, then
// head + 1 (release). The Collector loads head (acquire), reads, then stores tail (release). If the ring is full, a
// record is dropped and counted: unread records are never overwritten. Both counters never wrap.
//
// contexts is a ring of contexts_capacity slots of 64 bytes that any thread of the process writes: a thread takes a
// number n from contexts_head, stores 0 as the slot's sequence, then the slot, then n + 1 as its sequence (release). A
// reader accepts a slot only if its sequence is the expected one before and after the copy. Old ones are overwritten. A
// push for a batch of requests takes one number for itself and the following ones for the requests.
//
// names grows: each entry is a length (u32) and that many bytes of UTF-8, padded to 8 bytes. A record's name is the
// offset of its entry divided by 8, or NAME_UNKNOWN. names_used (release) is the number of bytes written.
//
// Compatibility: readers use record_size and context_size of the header, so fields may be added at the end of both and
// in the header's gaps. A change that would mislead an older reader changes RING_VERSION.
#ifndef OTELGPU_RING_H
#define OTELGPU_RING_H

#include <stdatomic.h>
#include <stdint.h>

#define RING_MAGIC "OTELGPUR"
#define RING_VERSION 1u
#define NAME_UNKNOWN 0xffffffffu
#define NAME_LIMIT 4096u // longer names are truncated
#define LINK_LIMIT 128u  // requests of one push

enum record_kind {
	RECORD_KERNEL = 1,
	RECORD_COPY = 2,
	RECORD_MEMSET = 3,
	RECORD_GRAPH = 4,        // not written
	RECORD_CONTEXT = 5,      // correlation belongs to context number a
	RECORD_WINDOW_BEGIN = 6, // start: CLOCK_MONOTONIC, end: CLOCK_REALTIME, a: CUPTI's clock, b: the request
	RECORD_WINDOW_END = 7,   // the same
	RECORD_CALL = 8,         // a call of CUDA on the host that gave the device work or waited for it; context: the thread
};

// One record; fields that do not apply to the kind are 0. Times are ns of the clock that WINDOW_BEGIN relates to
// others.
struct record {
	uint8_t kind;
	uint8_t copy_kind;   // CUpti_ActivityMemcpyKind
	uint8_t src_kind;    // CUpti_ActivityMemoryKind
	uint8_t dst_kind;
	uint32_t device;
	uint32_t context;
	uint32_t stream;
	uint32_t correlation;
	uint32_t name;
	uint64_t start, end;
	uint64_t a;          // bytes of a copy or memset; context number
	uint64_t b;          // graph node of a kernel or copy in a graph
	uint32_t grid[3], block[3];
	uint32_t static_shared, dynamic_shared;
	uint16_t registers;
	uint16_t reserved[3];
};

// The span of launches, pushed by the application per thread.
struct context {
	_Atomic uint64_t sequence;
	uint64_t number;     // referenced by RECORD_CONTEXT; never 0
	uint64_t pushed;     // CLOCK_MONOTONIC, ns
	uint32_t thread;
	uint32_t flags;      // of the traceparent
	uint8_t trace_id[16];
	uint8_t span_id[8];
	uint32_t links;      // number of following slots that are requests of the batch
	uint32_t links_lost; // those beyond LINK_LIMIT
};

enum state { STATE_IDLE = 0, STATE_OPEN = 1, STATE_REFUSED = 2 };

enum reason {
	REASON_NONE = 0,
	REASON_NO_CUPTI = 1,   // libcupti is not installed or lacks a function
	REASON_BUSY = 2,       // another tool of the process uses CUPTI
	REASON_CUPTI_ERROR = 3,
	REASON_BUDGET = 4,     // the window was closed early, because it reached its record limit
	REASON_MEMORY = 5,
};

#define KIND_BIT_KERNEL 1u
#define KIND_BIT_COPY 2u
#define KIND_BIT_MEMSET 4u
#define KIND_BIT_GRAPH 8u // ignored: CUPTI crashes processes that have instantiated a graph before
#define KIND_BIT_CONTEXT 16u
#define KIND_BIT_CALL 32u

struct device {
	char id[64];   // GPU-<uuid> or MIG-<uuid>; empty: unknown
	char name[64];
};

// What limits the blocks of kernels on a device. 0: unknown.
struct limits {
	uint32_t multiprocessors;
	uint32_t threads, blocks, registers, shared_memory; // of a multiprocessor; bytes
	uint32_t warp;                                      // threads
	uint32_t major, minor;                              // compute capability
};

struct header {
	char magic[8];
	uint32_t version;
	uint32_t header_size;
	uint32_t record_size;
	uint32_t context_size;
	uint64_t records_offset, records_capacity;   // bytes, slots
	uint64_t contexts_offset, contexts_capacity; // bytes, slots
	uint64_t names_offset, names_capacity;       // bytes, bytes
	uint32_t pid, uid;                           // as the process sees itself
	uint64_t pid_namespace;                      // inode of /proc/self/ns/pid
	uint64_t started;                            // the process's start, ticks since boot
	uint64_t created;                            // CLOCK_REALTIME, ns
	char command[64];
	char shim[32];
	_Atomic uint32_t ready;                      // 1 once all above is written

	// 512: written by the process
	_Alignas(512) _Atomic uint64_t head;
	_Atomic uint64_t contexts_head;
	_Atomic uint64_t names_used;
	_Atomic uint64_t dropped_full;    // records dropped because the ring was full
	_Atomic uint64_t dropped_budget;  // records of windows beyond their budget
	_Atomic uint64_t dropped_cupti;   // records that CUPTI dropped
	_Atomic uint64_t names_dropped;   // records whose name did not fit
	_Atomic uint64_t unknown;         // records of unrequested kinds
	_Atomic uint32_t state;
	_Atomic uint32_t answered;        // the newest request that was handled
	_Atomic uint32_t reason;
	_Atomic uint32_t cupti_result;
	_Atomic uint32_t cupti_version;
	uint32_t gap2;
	_Atomic uint64_t windows;         // windows opened
	char message[256];                // of the newest refusal, for humans

	// 1024: written by the Collector
	_Alignas(1024) _Atomic uint64_t tail;
	_Atomic uint32_t request;         // a new number opens a window; the process sleeps on it as a futex
	_Atomic uint32_t kinds;           // KIND_BIT_...
	_Atomic uint64_t window;          // length in ns
	_Atomic uint64_t budget;          // maximum records of the window
	_Atomic uint32_t cancel;          // the number of a request whose window must end now

	// 4096: written by the process; texts end with a 0
	_Alignas(4096) char service[128]; // OTEL_SERVICE_NAME
	char resource[1024];              // OTEL_RESOURCE_ATTRIBUTES
	_Atomic uint32_t devices;         // number of the following that are written, from the first window on
	uint32_t gap3;
	struct device device[16];         // by CUDA's ordinal in this process, likewise limits
	struct limits limits[16];
};

_Static_assert(sizeof(struct record) == 96, "a record is 96 bytes");
_Static_assert(sizeof(struct context) == 64, "a context is 64 bytes");
_Static_assert(__builtin_offsetof(struct header, head) == 512, "the process's part begins at 512");
_Static_assert(__builtin_offsetof(struct header, tail) == 1024, "the Collector's part begins at 1024");
_Static_assert(sizeof(struct header) == 8192, "the header is 8192 bytes");
#endif
