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

// context_number returns the number of the context that the calling thread pushed last, and writes its meaning to the
// ring if the window does not have it yet; 0: no span and no requests.
uint64_t context_number(struct header *h, uint32_t window);

// Records that a window may still write; calls and contexts are bounded by others.
struct budget { uint64_t activities, others; };

// take_buffer reads the records of a buffer filled by CUPTI.
void take_buffer(struct header *h, const struct cupti *c, uint8_t *buffer, size_t valid, struct budget *left);

// on_call is the callback of calls_enable's calls.
void on_call(void *unused, int domain, uint32_t id, const void *data);
// calls_enable begins or ends the callbacks of calls that give the device work or wait for it.
void calls_enable(const struct cupti *c, void *subscriber, bool on);
// calls_drain writes to the ring what on_call has recorded; called by one thread at a time. Without a ring it discards.
void calls_drain(struct header *h, struct budget *left);
#endif
