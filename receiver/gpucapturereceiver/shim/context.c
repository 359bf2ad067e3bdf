// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Associates a thread's launches with a span.
#define _GNU_SOURCE
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum { DEPTH = 64 }; // nested pushes of one thread that are distinguished; deeper ones are only counted

struct pushed {
	uint8_t trace_id[16], span_id[8], flags;
	bool span;          // of a valid traceparent
	uint32_t requests;  // of a batch
	uint32_t window;    // in which it was written to the ring; 0: in none
	uint64_t number;    // in the ring
};

static _Thread_local struct pushed stack[DEPTH];
static _Thread_local uint32_t depth;

// What is open in the only thread with open spans. It also has the launches of the threads in which PyTorch runs the
// backward pass, while that thread waits for them. While several threads have open spans, it is unknown which waits.
enum { WORDS = (sizeof(struct pushed) + 7) / 8 };
static struct {
	_Atomic bool owned;            // by a thread, which alone writes the two below
	_Atomic uint64_t sequence;     // odd while top is written
	_Atomic uint64_t top[WORDS];
	_Atomic uint32_t others;       // threads with open spans besides the owner
} sole;
static _Thread_local bool owns;
static _Thread_local uint32_t since; // the depth of this thread's outermost span; 0: none is open

static struct pushed *innermost(void) { return &stack[(depth < DEPTH ? depth : DEPTH) - 1]; }

// publish is called after each change of the thread's stack.
static void publish(void) {
	if (!owns) return;
	uint64_t words[WORDS] = {0}, sequence = atomic_load_explicit(&sole.sequence, memory_order_relaxed);
	if (depth > 0) memcpy(words, innermost(), sizeof(struct pushed));
	atomic_exchange_explicit(&sole.sequence, sequence + 1, memory_order_acquire); // before the following stores
	for (int i = 0; i < WORDS; i++) atomic_store_explicit(&sole.top[i], words[i], memory_order_relaxed);
	atomic_store_explicit(&sole.sequence, sequence + 2, memory_order_release);
}

static bool has_span(const struct pushed *p) { return p->span || p->requests; }

static void opened(void) {
	if (since == 0 && has_span(innermost())) {
		since = depth;
		owns = !atomic_exchange(&sole.owned, true);
		if (!owns) atomic_fetch_add(&sole.others, 1);
	}
	publish();
}

static void closed(void) {
	publish();
	if (since == 0 || depth >= since) return;
	since = 0;
	if (owns) atomic_store(&sole.owned, false);
	else atomic_fetch_sub(&sole.others, 1);
	owns = false;
}

// adopted returns a copy of what is open in the only thread with open spans; NULL if there is none.
static struct pushed *adopted(void) {
	static _Thread_local struct pushed copy;
	static _Thread_local uint64_t copied; // the sequence of the copy
	uint64_t words[WORDS], sequence = atomic_load_explicit(&sole.sequence, memory_order_acquire);
	if (!atomic_load(&sole.owned) || atomic_load(&sole.others) != 0 || sequence & 1) return NULL;
	if (sequence == copied) return &copy;
	for (int i = 0; i < WORDS; i++) words[i] = atomic_load_explicit(&sole.top[i], memory_order_acquire);
	if (atomic_load_explicit(&sole.sequence, memory_order_relaxed) != sequence) return NULL;
	memcpy(&copy, words, sizeof copy);
	copied = sequence;
	return &copy;
}

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

// tell writes the meaning of a context to the ring, under a new number.
static void tell(struct header *h, struct pushed *p, uint32_t window, const char *const *requests, size_t count) {
	struct pushed one;
	uint32_t links = 0, lost = 0;
	for (size_t i = 0; i < count; i++) {
		if (!parse(requests[i], &one)) continue;
		if (links < LINK_LIMIT) links++;
		else lost++;
	}
	if (!requests) lost = p->requests; // pushed before the window: their texts are gone
	uint64_t n = atomic_fetch_add_explicit(&h->contexts_head, 1 + links, memory_order_relaxed);
	uint32_t next = 0;
	for (size_t i = 0; i < count && next < links; i++)
		if (parse(requests[i], &one)) put(h, n + ++next, &one, 0, 0);
	put(h, n, p, links, lost);
	p->number = n + 1;
	p->window = window;
}

// runs_backward reports whether PyTorch made the calling thread for the backward pass, and named it so (since 2.6).
static bool runs_backward(void) {
	static _Thread_local enum { UNKNOWN, NO, YES } known;
	char name[16] = "";
	if (known == UNKNOWN) {
		prctl(PR_GET_NAME, name);
		known = strncmp(name, "pt_autograd_", 12) == 0 ? YES : NO;
	}
	return known == YES;
}

uint64_t context_number(struct header *h, uint32_t window) {
	struct pushed *p = since > 0 ? innermost() : runs_backward() ? adopted() : NULL;
	if (!p || !has_span(p)) return 0;
	if (p->window != window) tell(h, p, window, NULL, 0);
	return p->number;
}

void otelgpu_push_batch(const char *traceparent, const char *const *requests, size_t count) {
	struct header *h = atomic_load_explicit(&the_ring, memory_order_acquire);
	uint32_t window = atomic_load_explicit(&open_window, memory_order_acquire);
	if (depth >= DEPTH) {
		depth++;
		return;
	}
	struct pushed *p = &stack[depth++];
	p->span = parse(traceparent, p);
	p->requests = 0;
	struct pushed one;
	for (size_t i = 0; i < count; i++) p->requests += parse(requests[i], &one);
	// The texts of requests are the caller's, so they are written now; a span alone at its first launch in a window.
	if (h && window && p->requests) tell(h, p, window, requests, count);
	opened();
}

void otelgpu_push(const char *traceparent) { otelgpu_push_batch(traceparent, NULL, 0); }

int push_same(void) {
	if (depth < DEPTH) stack[depth] = depth > 0 ? stack[depth - 1] : (struct pushed){.span = false};
	depth++;
	opened();
	return 0;
}

void otelgpu_pop(void) {
	if (depth == 0) return; // an unmatched pop of the program
	depth--;
	closed();
}
