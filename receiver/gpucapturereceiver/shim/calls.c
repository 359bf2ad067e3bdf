// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Records the calls of CUDA that give the device work or wait for it, with the context of the calling thread. CUPTI's
// own association (cuptiActivityPushExternalCorrelationId) needs the records of all calls, which double the cost
// of a launch, also after the window.
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum { CALLS = 2048, SLOTS = 1 << 15 }; // numbers of calls are below 900 in CUDA 13

static const int domains[] = {CUPTI_DRIVER, CUPTI_RUNTIME};
static const char *names[2][CALLS]; // NULL: not recorded

// A bounded queue with many writers, the threads of the program, and one reader. A slot is free for position n if its
// sequence is n, and holds the call of that position if it is n + 1. A writer never waits: without a free slot the call
// is counted as dropped.
static struct slot {
	_Atomic uint64_t sequence;
	uint64_t start, end, number;
	uint32_t correlation, thread, id;
	int domain;
} slots[SLOTS];
static _Atomic uint64_t head;
static uint64_t tail;

static bool wanted(const char *name) {
	static const char *const parts[] = {"Launch", "Memcpy", "Memset", "Synchronize", "Malloc", "MemAlloc", "Free"};
	if (strstr(name, "Node") || strstr(name, "Attribute")) return false; // these build a graph
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (strstr(name, parts[i])) return true;
	return false;
}

static void find(const struct cupti *c) {
	static bool found;
	if (found) return;
	found = true;
	for (int side = 0; side < 2; side++)
		for (uint32_t id = 1; id < CALLS; id++) {
			const char *name = NULL;
			if (c->callback_name(domains[side], id, &name) == CUPTI_OK && name && wanted(name)) names[side][id] = name;
		}
	for (uint64_t i = 0; i < SLOTS; i++) atomic_store(&slots[i].sequence, i);
}

void calls_enable(const struct cupti *c, void *subscriber, bool on) {
	find(c);
	for (int side = 0; side < 2; side++)
		for (uint32_t id = 1; id < CALLS; id++)
			if (names[side][id]) c->enable_callback(on, subscriber, domains[side], id);
}

static uint64_t now(void) {
	uint64_t t = 0;
	if (the_cupti.register_clock) return clock_ns(CLOCK_MONOTONIC); // of the records as well
	the_cupti.get_timestamp(&t);
	return t;
}

// The runtime calls the driver: only the outer call of a thread is recorded, whose correlation the inner one has.
static _Thread_local struct { uint32_t window, depth; } nest;
enum { INNER = 1 }; // as the start of a call

static uint32_t thread_id(void) {
	static _Thread_local uint32_t id;
	if (!id) id = (uint32_t)syscall(SYS_gettid);
	return id;
}

void on_call(void *unused, int domain, uint32_t id, const void *data) {
	(void)unused;
	const struct cupti_call *call = data;
	struct header *h = atomic_load_explicit(&the_ring, memory_order_acquire);
	uint32_t window = atomic_load_explicit(&open_window, memory_order_acquire);
	if (!call->data) return;
	if (!h || !window) {
		if (call->site == 0) *call->data = 0;
		return;
	}
	if (nest.window != window) nest.window = window, nest.depth = 0;
	if (call->site == 0) {
		*call->data = nest.depth++ ? INNER : now();
		return;
	}
	if (*call->data != 0) nest.depth--; // 0: the call began before the window
	if (*call->data == INNER || nest.depth) return;
	uint64_t end = now(), n = atomic_load_explicit(&head, memory_order_relaxed);
	struct slot *s;
	for (;;) {
		s = &slots[n % SLOTS];
		uint64_t sequence = atomic_load_explicit(&s->sequence, memory_order_acquire);
		if (sequence < n) {
			atomic_fetch_add_explicit(&h->dropped_full, 1, memory_order_relaxed);
			return;
		}
		if (sequence == n && atomic_compare_exchange_weak_explicit(&head, &n, n + 1, memory_order_relaxed, memory_order_relaxed))
			break;
		if (sequence != n) n = atomic_load_explicit(&head, memory_order_relaxed);
	}
	s->start = *call->data, s->end = end; // a start of 0: the call began before the window
	s->number = context_number(h, window);
	s->correlation = call->correlation, s->thread = thread_id(), s->id = id, s->domain = domain;
	atomic_store_explicit(&s->sequence, n + 1, memory_order_release);
}

void calls_drain(struct header *h, struct budget *left) {
	for (;; tail++) {
		struct slot *s = &slots[tail % SLOTS];
		if (atomic_load_explicit(&s->sequence, memory_order_acquire) != tail + 1) return;
		const char *name = s->id < CALLS ? names[s->domain == CUPTI_RUNTIME][s->id] : NULL;
		struct record context = {
			.kind = RECORD_CONTEXT, .correlation = s->correlation, .name = NAME_UNKNOWN, .a = s->number,
		};
		struct record call = {
			.kind = RECORD_CALL, .context = s->thread, .correlation = s->correlation, .start = s->start, .end = s->end,
		};
		bool with_call = h && s->start && name && atomic_load(&h->kinds) & KIND_BIT_CALL, with_context = h && s->number;
		atomic_store_explicit(&s->sequence, tail + SLOTS, memory_order_release);
		if (!with_call && !with_context) continue;
		if (left->others < 2) {
			atomic_fetch_add_explicit(&h->dropped_budget, 1, memory_order_relaxed);
			continue;
		}
		if (with_context) ring_put(h, &context), left->others--;
		if (with_call) {
			call.name = ring_name(h, name);
			ring_put(h, &call), left->others--;
		}
	}
}
