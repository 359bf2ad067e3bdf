// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// The library as a tool of NVTX (NVTX_INJECTION64_PATH): a range that a thread pushes with a traceparent in its text,
// or with trace_id=… span_id=…, sets the span of the thread's launches, as otelgpu_push does. Other ranges do not
// change it.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "shim.h"

// Interface of NVTX's header (version 3) for tools, from its public definition.
enum { EXPORT_CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { CORE_PUSH_EX = 8, CORE_PUSH_A = 9, CORE_POP = 11, CORE2_PUSH_EX = 4, CORE2_POP = 5 };
enum { MESSAGE_TYPE = 32, MESSAGE = 40, MESSAGE_ASCII = 1 }; // offsets in nvtxEventAttributes_v2, of which `size` is at 2

typedef void (**function_slot)(void);

struct callbacks {
	size_t size;
	int (*table)(int module, function_slot **slots, unsigned *count);
};

static int push_text(const char *text) {
	char parent[56];
	const char *at = text ? strstr(text, "00-") : NULL;
	char trace[33], span[17];
	if (at && strnlen(at, 55) == 55 && at[35] == '-' && at[52] == '-') {
		memcpy(parent, at, 55);
		parent[55] = 0;
	} else if (text && (at = strstr(text, "trace_id=")) && sscanf(at, "trace_id=%32[0-9a-f] span_id=%16[0-9a-f]", trace, span) == 2) {
		snprintf(parent, sizeof parent, "00-%s-%s-01", trace, span);
	} else {
		return push_same();
	}
	otelgpu_push(parent);
	return 0;
}

static int push_event(const void *event) {
	const char *p = event;
	uint16_t size = 0;
	int32_t type = 0;
	const char *text = NULL;
	if (p) memcpy(&size, p + 2, sizeof size);
	if (size >= MESSAGE + sizeof text) {
		memcpy(&type, p + MESSAGE_TYPE, sizeof type);
		if (type == MESSAGE_ASCII) memcpy(&text, p + MESSAGE, sizeof text);
	}
	return push_text(text);
}

static int push_domain_event(void *domain, const void *event) { (void)domain; return push_event(event); }
static int pop(void) { otelgpu_pop(); return 0; }
static int pop_domain(void *domain) { (void)domain; return pop(); }

static void set(function_slot *slots, unsigned count, unsigned at, void (*f)(void)) {
	if (at < count && slots[at]) *slots[at] = f;
}

// InitializeInjectionNvtx2 is called by NVTX's header at a program's first range.
EXPORT int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t));

int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t)) {
	const struct callbacks *c = get_table ? get_table(EXPORT_CALLBACKS) : NULL;
	function_slot *slots;
	unsigned count;
	if (!c || c->size < sizeof *c) return 0;
	if (c->table(MODULE_CORE, &slots, &count)) {
		set(slots, count, CORE_PUSH_EX, (void (*)(void))push_event);
		set(slots, count, CORE_PUSH_A, (void (*)(void))push_text);
		set(slots, count, CORE_POP, (void (*)(void))pop);
	}
	if (c->table(MODULE_CORE2, &slots, &count)) {
		set(slots, count, CORE2_PUSH_EX, (void (*)(void))push_domain_event);
		set(slots, count, CORE2_POP, (void (*)(void))pop_domain);
	}
	return 1;
}
