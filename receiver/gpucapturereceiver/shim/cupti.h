// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// The part of CUPTI that is used, declared from its public documentation so that building needs no NVIDIA header.
// Records are read by offsets that are the same in CUPTI 11.8, 12.9 and 13.5 (testdata/offsets.c compares them with the
// headers).
#ifndef OTELGPU_CUPTI_H
#define OTELGPU_CUPTI_H

#include <stddef.h>
#include <stdint.h>

enum {
	CUPTI_OK = 0,
	CUPTI_MAX_LIMIT_REACHED = 12,
	CUPTI_MULTIPLE_SUBSCRIBERS = 39,
};

enum {
	CUPTI_MEMCPY = 1,
	CUPTI_MEMSET = 2,
	CUPTI_CONCURRENT_KERNEL = 10,
	CUPTI_MEMCPY_PEER = 22,
};

// Offsets of fields in records.
enum {
	KERNEL_REGISTERS = 6, KERNEL_START = 16, KERNEL_END = 24, KERNEL_DEVICE = 40, KERNEL_CONTEXT = 44, KERNEL_STREAM = 48,
	KERNEL_GRID = 52, KERNEL_BLOCK = 64, KERNEL_STATIC_SHARED = 76, KERNEL_DYNAMIC_SHARED = 80, KERNEL_CORRELATION = 92,
	KERNEL_NAME = 104, KERNEL_GRAPH_NODE = 144,

	COPY_KIND = 4, COPY_SRC = 5, COPY_DST = 6, COPY_BYTES = 8, COPY_START = 16, COPY_END = 24, COPY_DEVICE = 32,
	COPY_CONTEXT = 36, COPY_STREAM = 40, COPY_CORRELATION = 44, COPY_GRAPH_NODE = 64, PEER_CORRELATION = 60,

	SET_BYTES = 8, SET_START = 16, SET_END = 24, SET_DEVICE = 32, SET_CONTEXT = 36, SET_STREAM = 40, SET_CORRELATION = 44,
};

// Domains of callbacks.
enum { CUPTI_DRIVER = 1, CUPTI_RUNTIME = 2 };

// CUpti_CallbackData, which a callback is given on entry to a call of CUDA and on exit from it.
struct cupti_call {
	int site; // 0: entry, 1: exit
	const char *function;
	const void *parameters;
	void *result;
	const char *symbol;
	void *context;
	uint32_t context_id;
	uint64_t *data; // shared by the two callbacks of one call
	uint32_t correlation;
};

typedef void (*cupti_callback_fn)(void *data, int domain, uint32_t id, const void *call);

typedef void (*cupti_request_fn)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*cupti_complete_fn)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
typedef uint64_t (*cupti_clock_fn)(void);

// Table of libcupti functions, which is opened at run time.
struct cupti {
	int (*get_version)(uint32_t *);
	int (*get_timestamp)(uint64_t *);
	int (*subscribe)(void **, cupti_callback_fn, void *);
	int (*unsubscribe)(void *);
	int (*activity_enable)(int);
	int (*activity_disable)(int);
	int (*activity_register)(cupti_request_fn, cupti_complete_fn);
	int (*activity_next)(uint8_t *, size_t, void **);
	int (*activity_flush_all)(uint32_t);
	int (*activity_dropped)(void *, uint32_t, size_t *);
	int (*enable_callback)(uint32_t, void *, int, uint32_t);
	int (*callback_name)(int, uint32_t, const char **);
	int (*register_clock)(cupti_clock_fn);               // may be absent
	int (*result_string)(int, const char **);            // may be absent
};

// cupti_load opens the libcupti that the process has loaded, or the newest that the linker finds. It fills in the table
// and returns 0, or writes a message and returns -1.
int cupti_load(struct cupti *out, char *message, size_t size);
#endif
