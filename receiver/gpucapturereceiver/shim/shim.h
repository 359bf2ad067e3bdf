// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Declarations shared by the files of the shim.
#ifndef OTELGPU_SHIM_H
#define OTELGPU_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cupti.h"
#include "ring.h"

#define SHIM_VERSION "1"
#define EXPORT __attribute__((visibility("default")))

// ring_create creates the process's ring in the folder and returns its header, or writes a message and returns NULL.
// The file descriptor that holds the lock stays open.
struct header *ring_create(const char *folder, char *message, size_t size);
// ring_fill allocates the memory of the ring, so that a full /dev/shm is an error here and not a later SIGBUS in the
// program.
bool ring_fill(struct header *h);
// ring_put appends a record; called by one thread at a time.
void ring_put(struct header *h, const struct record *r);
// ring_name interns a name and returns its number; called by one thread at a time.
uint32_t ring_name(struct header *h, const char *name);

uint64_t clock_ns(int clock);

// The process's ring; NULL before its creation, after a failure, and in a forked child.
extern struct header *_Atomic the_ring;
extern struct cupti the_cupti;
// The number of the open window; 0: none.
extern _Atomic uint32_t open_window;

// Also called by programs; push_same pushes the top again, for ranges without a span.
EXPORT void otelgpu_push(const char *traceparent);
EXPORT void otelgpu_push_batch(const char *traceparent, const char *const *requests, size_t count);
EXPORT void otelgpu_pop(void);
int push_same(void);

// take_buffer reads the records of a buffer filled by CUPTI.
void take_buffer(struct header *h, const struct cupti *c, uint8_t *buffer, size_t valid, uint64_t *left);
#endif
