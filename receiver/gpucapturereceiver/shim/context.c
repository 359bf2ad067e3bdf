// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Associates a thread's launches with a span.
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum { DEPTH = 64 }; // nested pushes of one thread that are distinguished; deeper ones are only counted

struct pushed { uint8_t trace_id[16], span_id[8]; uint8_t flags; bool given; }; // given: pushed to CUPTI

static _Thread_local struct pushed stack[DEPTH];
static _Thread_local uint32_t depth;

static int digit(char c) {
	if (c >= '0' && c <= '9') return c - '0';
	if (c >= 'a' && c <= 'f') return c - 'a' + 10;
	return -1;
}

static bool bytes(const char *text, uint8_t *out, size_t n) {
	uint8_t any = 0;
	for (size_t i = 0; i < n; i++) {
		int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
		if (low < 0) return false;
		out[i] = (uint8_t)(high << 4 | low);
		any |= out[i];
	}
	return any != 0;
}

// parse reads a W3C traceparent of version 00; any other text means no span.
static bool parse(const char *text, struct pushed *p) {
	memset(p, 0, sizeof *p);
	if (!text || strnlen(text, 56) != 55 || memcmp(text, "00-", 3) != 0 || text[35] != '-' || text[52] != '-') return false;
	if (!bytes(text + 3, p->trace_id, 16) || !bytes(text + 36, p->span_id, 8)) return false;
	if (!bytes(text + 53, &p->flags, 1) && memcmp(text + 53, "00", 2) != 0) return false;
	return true;
}

static void put(struct header *h, uint64_t n, const struct pushed *p, uint32_t links, uint32_t lost) {
	struct context *slots = (struct context *)((char *)h + h->contexts_offset);
	struct context *c = &slots[n % h->contexts_capacity];
	atomic_exchange_explicit(&c->sequence, 0, memory_order_acquire); // so that the following stores come after it
	c->number = n + 1;
	c->pushed = clock_ns(CLOCK_MONOTONIC);
	c->thread = (uint32_t)syscall(SYS_gettid);
	c->flags = p->flags;
	c->links = links;
	c->links_lost = lost;
	memcpy(c->trace_id, p->trace_id, sizeof c->trace_id);
	memcpy(c->span_id, p->span_id, sizeof c->span_id);
	atomic_store_explicit(&c->sequence, n + 1, memory_order_release);
}

// tell gives CUPTI a number for the following launches, and writes its meaning to the ring.
static void tell(struct header *h, struct pushed *p, const char *const *requests, size_t count) {
	struct pushed one;
	uint32_t links = 0, lost = 0;
	for (size_t i = 0; i < count; i++) {
		if (!parse(requests[i], &one)) continue;
		if (links < LINK_LIMIT) links++;
		else lost++;
	}
	uint64_t n = atomic_fetch_add_explicit(&h->contexts_head, 1 + links, memory_order_relaxed);
	uint32_t next = 0;
	for (size_t i = 0; i < count && next < links; i++)
		if (parse(requests[i], &one)) put(h, n + ++next, &one, 0, 0);
	put(h, n, p, links, lost);
	p->given = the_cupti.push_external(CUPTI_CUSTOM0, n + 1) == CUPTI_OK;
}

void otelgpu_push_batch(const char *traceparent, const char *const *requests, size_t count) {
	struct header *h = atomic_load_explicit(&the_ring, memory_order_acquire);
	if (depth >= DEPTH) {
		depth++;
		return;
	}
	struct pushed *p = &stack[depth++];
	bool span = parse(traceparent, p);
	// No CUPTI call without a window. "No span" within a span is recorded, too, because it hides the outer one.
	if (h && (span || count || depth > 1) && atomic_load_explicit(&open_window, memory_order_acquire))
		tell(h, p, requests, count);
}

void otelgpu_push(const char *traceparent) { otelgpu_push_batch(traceparent, NULL, 0); }

int push_same(void) {
	if (depth < DEPTH) {
		stack[depth] = depth > 0 ? stack[depth - 1] : (struct pushed){.given = false};
		stack[depth].given = false; // CUPTI has no number for it
	}
	depth++;
	return 0;
}

void otelgpu_pop(void) {
	if (depth == 0) return; // an unmatched pop of the program
	if (--depth >= DEPTH) return;
	struct pushed *p = &stack[depth];
	uint64_t last;
	// Also after the window: the pushed number must not be on the stack in the next one.
	if (p->given) the_cupti.pop_external(CUPTI_CUSTOM0, &last);
	p->given = false;
}
