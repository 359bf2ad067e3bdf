// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Converts CUPTI records to records of the ring.
#include <string.h>

#include "shim.h"

static uint64_t u64(const uint8_t *p, size_t at) { uint64_t v; memcpy(&v, p + at, sizeof v); return v; }
static uint32_t u32(const uint8_t *p, size_t at) { uint32_t v; memcpy(&v, p + at, sizeof v); return v; }
static uint16_t u16(const uint8_t *p, size_t at) { uint16_t v; memcpy(&v, p + at, sizeof v); return v; }

static bool read_record(struct header *h, const uint8_t *p, struct record *r) {
	memset(r, 0, sizeof *r);
	switch (u32(p, 0)) {
	case CUPTI_CONCURRENT_KERNEL: {
		*r = (struct record){
			.kind = RECORD_KERNEL, .device = u32(p, KERNEL_DEVICE), .context = u32(p, KERNEL_CONTEXT),
			.stream = u32(p, KERNEL_STREAM), .correlation = u32(p, KERNEL_CORRELATION), .start = u64(p, KERNEL_START),
			.end = u64(p, KERNEL_END), .b = u64(p, KERNEL_GRAPH_NODE), .static_shared = u32(p, KERNEL_STATIC_SHARED),
			.dynamic_shared = u32(p, KERNEL_DYNAMIC_SHARED), .registers = u16(p, KERNEL_REGISTERS),
		};
		memcpy(r->grid, p + KERNEL_GRID, sizeof r->grid);
		memcpy(r->block, p + KERNEL_BLOCK, sizeof r->block);
		const char *name;
		memcpy(&name, p + KERNEL_NAME, sizeof name);
		r->name = ring_name(h, name);
		return true;
	}
	case CUPTI_MEMCPY:
	case CUPTI_MEMCPY_PEER:
		*r = (struct record){
			.kind = RECORD_COPY, .copy_kind = p[COPY_KIND], .src_kind = p[COPY_SRC], .dst_kind = p[COPY_DST],
			.device = u32(p, COPY_DEVICE), .context = u32(p, COPY_CONTEXT), .stream = u32(p, COPY_STREAM),
			.correlation = u32(p, u32(p, 0) == CUPTI_MEMCPY ? COPY_CORRELATION : PEER_CORRELATION),
			.name = NAME_UNKNOWN, .start = u64(p, COPY_START), .end = u64(p, COPY_END), .a = u64(p, COPY_BYTES),
			.b = u32(p, 0) == CUPTI_MEMCPY ? u64(p, COPY_GRAPH_NODE) : 0,
		};
		return true;
	case CUPTI_MEMSET:
		*r = (struct record){
			.kind = RECORD_MEMSET, .device = u32(p, SET_DEVICE), .context = u32(p, SET_CONTEXT),
			.stream = u32(p, SET_STREAM), .correlation = u32(p, SET_CORRELATION), .name = NAME_UNKNOWN,
			.start = u64(p, SET_START), .end = u64(p, SET_END), .a = u64(p, SET_BYTES),
		};
		return true;
	}
	atomic_fetch_add_explicit(&h->unknown, 1, memory_order_relaxed);
	return false;
}

void take_buffer(struct header *h, const struct cupti *c, uint8_t *buffer, size_t valid, struct budget *left) {
	void *at = NULL;
	struct record r;
	while (valid > 0 && c->activity_next(buffer, valid, &at) == CUPTI_OK && at) {
		if (left->activities == 0) {
			atomic_fetch_add_explicit(&h->dropped_budget, 1, memory_order_relaxed);
			continue;
		}
		if (read_record(h, at, &r)) {
			ring_put(h, &r);
			left->activities--;
		}
	}
}
