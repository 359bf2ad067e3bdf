/* Copyright The otelgpu Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * An NVTX v3 injection library that records its calls, written from the published binary interface: it requests the
 * two function tables and fills in its functions, as a profiler does. Compile with -DREFUSE for one that declines. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct attributes { /* 48 bytes */
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type, pad;
	const void *message;
};
struct callbacks {
	size_t size;
	int (*get_table)(int module, void ****table, unsigned *n);
};
struct version_info {
	size_t size;
	uint32_t version, reserved;
	void (*set_version)(uint32_t);
};

struct domain { char name[64]; };
struct string { char text[128]; struct domain *domain; };
struct event {
	char kind[16], domain[64], text[256];
	uint32_t category, color;
	int32_t color_type, payload_type;
	uint64_t payload, id;
	int64_t thread;
};
static struct event events[65536];
static int64_t count;
static uint64_t ids;
static int attributes_ok = 1;
static unsigned core_size, core2_size;
static uint32_t version;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void record(const char *kind, struct domain *d, const struct attributes *a, uint64_t id, const char *text, uint32_t category) {
	pthread_mutex_lock(&lock);
	struct event *e = &events[count++ % 65536];
	memset(e, 0, sizeof *e);
	strcpy(e->kind, kind);
	e->thread = gettid();
	e->id = id;
	e->category = category;
	if (d) strcpy(e->domain, d->name);
	if (text) strncpy(e->text, text, 255);
	if (a) {
		if (a->version != 3 || a->size != 48 || a->reserved) attributes_ok = 0;
		e->category = a->category, e->color_type = a->color_type, e->color = a->color, e->payload_type = a->payload_type, e->payload = a->payload;
		if (a->message_type == 1) strncpy(e->text, a->message, 255);
		if (a->message_type == 3) {
			const struct string *s = a->message;
			if (s->domain != d) attributes_ok = 0;
			strncpy(e->text, s->text, 255);
		}
	}
	pthread_mutex_unlock(&lock);
}

static struct domain *domain_create(const char *name) {
	struct domain *d = calloc(1, sizeof *d);
	strncpy(d->name, name, 63);
	record("domain", d, NULL, 0, name, 0);
	return d;
}
static struct string *register_string(struct domain *d, const char *text) {
	struct string *s = calloc(1, sizeof *s);
	strncpy(s->text, text, 127);
	s->domain = d;
	record("string", d, NULL, 0, text, 0);
	return s;
}
static void name_category(struct domain *d, uint32_t id, const char *name) { record("category", d, NULL, 0, name, id); }
static void mark(struct domain *d, const struct attributes *a) { record("mark", d, a, 0, NULL, 0); }
static uint64_t range_start(struct domain *d, const struct attributes *a) {
	uint64_t id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
	record("start", d, a, id, NULL, 0);
	return id;
}
static void range_end(struct domain *d, uint64_t id) { record("end", d, NULL, id, NULL, 0); }
static int push(struct domain *d, const struct attributes *a) { return record("push", d, a, 0, NULL, 0), 0; }
static int pop(struct domain *d) { return record("pop", d, NULL, 0, NULL, 0), 0; }
static uint64_t quiet_start(struct domain *d, const struct attributes *a) { return (void)d, (void)a, 1; }
static void quiet_end(struct domain *d, uint64_t id) { (void)d, (void)id; }

static void ***core2;

EXPORT int InitializeInjectionNvtx2(const void *(*get)(uint32_t)) {
#ifdef REFUSE
	return (void)get, 0;
#endif
	const struct callbacks *c = get(1);
	const struct version_info *v = get(3);
	if (!c || c->size < sizeof *c || !v || v->size < sizeof *v || get(2) || get(99)) return 0;
	version = v->version;
	v->set_version(3);
	void ***core;
	if (!c->get_table(1, &core, &core_size) || !c->get_table(5, &core2, &core2_size)) return 0;
#ifndef ANY_CLIENT /* NVIDIA's client has a table for CUDA's objects, too */
	void ***other;
	unsigned n;
	if (c->get_table(2, &other, &n)) return 0;
#endif
	/* Slots contain the application's no-ops or NULL; entry 0 is NULL and the end is marked. */
	if (core[0] || core2[0] || core[core_size] || core2[core2_size]) return 0;
	*core2[1] = mark;
	*core2[2] = range_start;
	*core2[3] = range_end;
	*core2[4] = push;
	*core2[5] = pop;
	*core2[8] = name_category;
	*core2[10] = register_string;
#ifndef NO_DOMAINS
	*core2[12] = domain_create;
#endif
	return 1;
}

EXPORT int64_t rec_count(void) { return count; }
EXPORT const char *rec_kind(int64_t i) { return events[i].kind; }
EXPORT const char *rec_domain(int64_t i) { return events[i].domain; }
EXPORT const char *rec_text(int64_t i) { return events[i].text; }
EXPORT uint32_t rec_category(int64_t i) { return events[i].category; }
EXPORT uint32_t rec_color(int64_t i) { return events[i].color_type ? events[i].color : 0; }
EXPORT int32_t rec_payload_type(int64_t i) { return events[i].payload_type; }
EXPORT uint64_t rec_payload(int64_t i) { return events[i].payload; }
EXPORT uint64_t rec_id(int64_t i) { return events[i].id; }
EXPORT int64_t rec_thread(int64_t i) { return events[i].thread; }
EXPORT int rec_attributes_ok(void) { return attributes_ok; }
EXPORT uint32_t rec_version(void) { return version; }
EXPORT uint32_t rec_tables(void) { return core_size << 16 | core2_size; }
EXPORT void rec_quiet(void) { *core2[2] = quiet_start, *core2[3] = quiet_end; } /* for benchmarks */
EXPORT void rec_clear(void) { count = 0; }
EXPORT uint64_t rec_core_slot(int module, int i) { /* content of a slot that the tool has not changed */
	(void)module, (void)i;
	return core2 && core2[i] ? (uint64_t)(uintptr_t)*core2[i] : 0;
}
