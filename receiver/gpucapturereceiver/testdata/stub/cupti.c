// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// A libcupti based on public documentation, and as strict as documented: one subscriber, callbacks before kinds,
// buffers with 8-byte alignment returned exactly once and, unless forced, only with finished records, records walked by
// their own sizes, callbacks only of enabled calls. It records what stub_launch "runs", and replays a file of records (CUPTI_STUB_REPLAY, CUPTI_STUB_REPEAT
// times) when kinds are enabled. Violated rules print a line and abort.
//
// The replay file: u64 count, then `count` entries of struct entry, each followed by `name_length` bytes of name.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "cupti stub: broken rule: %s (line %d)\n", #x, __LINE__); abort(); } } while (0)

struct entry {
	uint32_t kind, device, context, stream, correlation, name_length;
	uint64_t start, end, a, b;
	uint32_t grid[3], block[3], static_shared, dynamic_shared;
	uint16_t registers;
	uint8_t copy_kind, src_kind, dst_kind, pad[3];
};

_Static_assert(sizeof(struct entry) == 96, "an entry of the replay file is 96 bytes");

enum { OK = 0, INVALID_PARAMETER = 1, NOT_INITIALIZED = 15, MULTIPLE = 39, LIMIT = 12, QUEUE_EMPTY = 13 };

typedef void (*request_fn)(uint8_t **, size_t *, size_t *);
typedef void (*complete_fn)(void *, uint32_t, uint8_t *, size_t, size_t);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static request_fn request;
static complete_fn complete;
static uint64_t (*user_clock)(void);
static bool enabled[64], subscribed;
static uint8_t *buffer;
static size_t size, used;
static _Atomic size_t dropped;
static _Atomic int calls;
static _Atomic uint32_t correlations;
// A few of the calls, with their numbers in CUDA 12 and 13.
static const struct { int domain; uint32_t id; const char *name; } known_calls[] = {
	{1, 307, "cuLaunchKernel"}, {1, 2, "cuDriverGetVersion"}, {1, 517, "cuGraphAddKernelNode"}, {2, 211, "cudaLaunchKernel_v7000"},
	{2, 131, "cudaStreamSynchronize_v3020"}, {2, 17, "cudaGetDevice_v3020"},
};

static _Atomic bool enabled_calls[3][2048]; // by domain
static void (*callback)(void *, int, uint32_t, const void *);
static void *callback_data;
static pthread_t replayer;
static bool replaying, asked; // asked: the tool has requested records, after it enabled all kinds
static pthread_cond_t first_asked = PTHREAD_COND_INITIALIZER;

static uint64_t real_clock(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// CUPTI's own clock is not the host's: it starts elsewhere and runs 30 ppm fast.
static uint64_t own_clock(void) { return 77000000000000u + real_clock() + real_clock() / 33333; }

static size_t record_size(uint32_t kind) {
	switch (kind) {
	case 10: return 208;
	case 1: return 96;
	case 22: return 96;
	case 2: return 88;
	}
	return 0;
}

static void put32(uint8_t *p, size_t at, uint32_t v) { memcpy(p + at, &v, 4); }
static void put64(uint8_t *p, size_t at, uint64_t v) { memcpy(p + at, &v, 8); }

// Called with the lock; releases it while the tool is called, because the tool may call CUPTI.
static void hand_over(void) {
	if (!buffer) return;
	uint8_t *b = buffer;
	size_t s = size, u = used;
	complete_fn f = complete;
	buffer = NULL;
	size = used = 0;
	pthread_mutex_unlock(&lock);
	f(NULL, 0, b, s, u);
	pthread_mutex_lock(&lock);
}

// Called with the lock. The lock is released while the tool is called, so the buffer is checked again.
static uint8_t *room(size_t need) {
	while (!buffer || used + need > size) {
		if (buffer) {
			hand_over();
			continue;
		}
		uint8_t *b = NULL;
		size_t s = 0, max = 0;
		request_fn f = request;
		pthread_mutex_unlock(&lock);
		f(&b, &s, &max);
		pthread_mutex_lock(&lock);
		if (!b || s < need) {
			dropped++;
			return NULL;
		}
		MUST(((uintptr_t)b & 7) == 0);
		if (buffer) { // another thread was faster
			complete_fn g = complete;
			pthread_mutex_unlock(&lock);
			g(NULL, 0, b, s, 0);
			pthread_mutex_lock(&lock);
		} else {
			buffer = b, size = s, used = 0;
			memset(b, 0xa5, s < 4096 ? s : 4096); // CUPTI does not guarantee zeros
		}
	}
	uint8_t *p = buffer + used;
	used += need;
	memset(p, 0, need);
	return p;
}

static void write_record(const struct entry *e, const char *name) {
	if (!enabled[e->kind]) return;
	uint8_t *p = room(record_size(e->kind));
	if (!p) return;
	put32(p, 0, e->kind);
	switch (e->kind) {
	case 10:
		memcpy(p + 6, &e->registers, 2);
		put64(p, 16, e->start), put64(p, 24, e->end), put32(p, 40, e->device), put32(p, 44, e->context);
		put32(p, 48, e->stream), memcpy(p + 52, e->grid, 12), memcpy(p + 64, e->block, 12);
		put32(p, 76, e->static_shared), put32(p, 80, e->dynamic_shared), put32(p, 92, e->correlation);
		put64(p, 104, (uint64_t)(uintptr_t)name), put64(p, 144, e->b);
		break;
	case 1:
	case 22:
		p[4] = e->copy_kind, p[5] = e->src_kind, p[6] = e->dst_kind;
		put64(p, 8, e->a), put64(p, 16, e->start), put64(p, 24, e->end), put32(p, 32, e->device), put32(p, 36, e->context);
		put32(p, 40, e->stream), put32(p, e->kind == 1 ? 44 : 60, e->correlation);
		break;
	case 2:
		put64(p, 8, e->a), put64(p, 16, e->start), put64(p, 24, e->end), put32(p, 32, e->device), put32(p, 36, e->context);
		put32(p, 40, e->stream), put32(p, 44, e->correlation);
		break;
	}
}

static void *replay(void *unused) {
	(void)unused;
	FILE *f = fopen(getenv("CUPTI_STUB_REPLAY"), "rb");
	MUST(f);
	uint64_t count = 0;
	MUST(fread(&count, 8, 1, f) == 1);
	struct entry *list = calloc(count, sizeof *list);
	char **names = calloc(count, sizeof *names);
	static struct { char *text; } known[1 << 14];
	for (uint64_t i = 0; i < count; i++) {
		MUST(fread(&list[i], sizeof *list, 1, f) == 1);
		char *text = calloc(1, list[i].name_length + 1);
		MUST(fread(text, 1, list[i].name_length, f) == list[i].name_length);
		if (!list[i].name_length) { free(text); continue; }
		// One pointer per kernel, as in CUPTI.
		uint64_t h = 14695981039346656037u;
		for (char *c = text; *c; c++) h = (h ^ (uint8_t)*c) * 1099511628211u;
		size_t at = h & ((1 << 14) - 1);
		while (known[at].text && strcmp(known[at].text, text)) at = (at + 1) & ((1 << 14) - 1);
		if (known[at].text) free(text);
		else known[at].text = text;
		names[i] = known[at].text;
	}
	fclose(f);
	const char *repeat = getenv("CUPTI_STUB_REPEAT");
	const char *pace = getenv("CUPTI_STUB_PACE"); // records between pauses of 1 ms; 0: none
	uint64_t burst = pace ? strtoull(pace, NULL, 10) : 0, n = 0;
	pthread_mutex_lock(&lock);
	while (!asked) pthread_cond_wait(&first_asked, &lock);
	uint64_t base = user_clock ? user_clock() : own_clock();
	pthread_mutex_unlock(&lock);
	if (getenv("CUPTI_STUB_REBASE")) // the file's times are relative to the start of the replay
		for (uint64_t i = 0; i < count; i++) list[i].start += base, list[i].end += base;
	for (long k = repeat ? atol(repeat) : 1; k > 0; k--)
		for (uint64_t i = 0; i < count; i++) {
			pthread_mutex_lock(&lock);
			bool on = enabled[list[i].kind];
			write_record(&list[i], names[i]);
			pthread_mutex_unlock(&lock);
			if (on && burst && ++n % burst == 0) usleep(1000);
		}
	fprintf(stderr, "cupti stub: replayed\n");
	return NULL;
}

int cuptiGetVersion(uint32_t *v) {
	const char *version = getenv("CUPTI_STUB_VERSION");
	calls++;
	*v = version ? (uint32_t)atoi(version) : 18;
	return OK;
}
int cuptiGetTimestamp(uint64_t *t) {
	static _Atomic int readings;
	calls++;
	*t = user_clock ? user_clock() : own_clock();
	if (getenv("CUPTI_STUB_HELD_UP") && readings++ == 0) usleep(100000); // the thread loses its CPU here
	return OK;
}

int cuptiSubscribe(void **s, void (*f)(void *, int, uint32_t, const void *), void *data) {
	calls++;
	if (getenv("CUPTI_STUB_DEAD")) return NOT_INITIALIZED;
	if (subscribed || getenv("CUPTI_STUB_BUSY")) return MULTIPLE;
	subscribed = true;
	callback = f, callback_data = data;
	*s = &subscribed;
	return OK;
}

int cuptiUnsubscribe(void *s) {
	calls++;
	if (s != &subscribed || !subscribed) return INVALID_PARAMETER;
	for (int i = 0; i < 64; i++) MUST(!enabled[i]);
	for (size_t i = 0; i < sizeof known_calls / sizeof *known_calls; i++)
		enabled_calls[known_calls[i].domain][known_calls[i].id] = false;
	subscribed = false;
	return OK;
}

int cuptiActivityRegisterCallbacks(request_fn r, complete_fn c) {
	calls++;
	if (!r || !c) return INVALID_PARAMETER;
	request = r, complete = c;
	return OK;
}

int cuptiActivityEnable(int kind) {
	calls++;
	MUST(request && complete && subscribed);
	if (kind <= 0 || kind >= 64 || !record_size((uint32_t)kind)) return INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	enabled[kind] = true;
	pthread_mutex_unlock(&lock);
	if (kind == 10 && getenv("CUPTI_STUB_REPLAY") && !replaying) {
		replaying = true;
		pthread_create(&replayer, NULL, replay, NULL);
		pthread_detach(replayer);
	}
	return OK;
}

int cuptiActivityDisable(int kind) {
	calls++;
	pthread_mutex_lock(&lock);
	enabled[kind] = false;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuptiActivityFlushAll(uint32_t flag) {
	calls++;
	pthread_mutex_lock(&lock);
	asked = true;
	pthread_cond_broadcast(&first_asked);
	// Without the forced flag only full buffers must be returned; CUPTI also returns the current one if it has only
	// finished records, so this stub does. Forced, it returns records of running kernels without an end.
	uint64_t now = user_clock ? user_clock() : own_clock();
	bool running = false;
	for (size_t at = 0; at < used;) {
		uint32_t kind;
		uint64_t end;
		memcpy(&kind, buffer + at, 4);
		memcpy(&end, buffer + at + 24, 8);
		if (kind == 10 && end > now && !replaying) {
			running = true;
			if (flag) put64(buffer, at + 24, 0);
		}
		at += record_size(kind);
	}
	if (used && (flag || !running)) hand_over();
	if (flag && buffer) hand_over();
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuptiActivityGetNextRecord(uint8_t *b, size_t valid, void **at) {
	uint8_t *p = *at;
	if (!p) p = b;
	else {
		uint32_t kind;
		memcpy(&kind, p, 4);
		p += record_size(kind);
	}
	if (p >= b + valid) return LIMIT;
	*at = p;
	return OK;
}

int cuptiActivityGetNumDroppedRecords(void *c, uint32_t s, size_t *n) {
	(void)c, (void)s;
	*n = atomic_exchange(&dropped, 0);
	return OK;
}

int cuptiGetCallbackName(int domain, uint32_t id, const char **name) {
	calls++;
	for (size_t i = 0; i < sizeof known_calls / sizeof *known_calls; i++)
		if (known_calls[i].domain == domain && known_calls[i].id == id) {
			*name = known_calls[i].name;
			return OK;
		}
	return INVALID_PARAMETER;
}

int cuptiEnableCallback(uint32_t on, void *s, int domain, uint32_t id) {
	calls++;
	const char *name;
	if (s != &subscribed || !subscribed || cuptiGetCallbackName(domain, id, &name) != OK) return INVALID_PARAMETER;
	enabled_calls[domain][id] = on;
	return OK;
}

// The layout of CUpti_CallbackData.
struct call {
	int site;
	const char *function;
	const void *parameters;
	void *result;
	const char *symbol;
	void *context;
	uint32_t context_id;
	uint64_t *data;
	uint32_t correlation;
};

static void call_back(int site, int domain, uint32_t id, uint32_t correlation, uint64_t *data) {
	struct call c = {.site = site, .data = data, .correlation = correlation};
	if (enabled_calls[domain][id]) callback(callback_data, domain, id, &c);
}

#ifndef NO_CLOCK
int cuptiActivityRegisterTimestampCallback(uint64_t (*f)(void)) {
	calls++;
	pthread_mutex_lock(&lock);
	user_clock = f;
	pthread_mutex_unlock(&lock);
	return OK;
}
#endif

int cuptiGetResultString(int result, const char **text) {
	*text = result == MULTIPLE ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_NOT_INITIALIZED";
	return OK;
}

// stub_launch simulates the launch of a kernel that runs for ns from now on. Returns its correlation ID.
uint32_t stub_launch(const char *name, uint64_t ns) {
	struct entry e = {.kind = 10, .device = 0, .context = 1, .stream = 7, .grid = {4, 1, 1}, .block = {128, 1, 1}};
	e.correlation = ++correlations;
	uint64_t data = 0, unseen = 0;
	call_back(0, 2, 17, e.correlation, &unseen), call_back(1, 2, 17, e.correlation, &unseen); // cudaGetDevice
	uint64_t inner = 0;
	call_back(0, 2, 211, e.correlation, &data), call_back(0, 1, 307, e.correlation, &inner); // the runtime calls the driver
	pthread_mutex_lock(&lock);
	e.start = user_clock ? user_clock() : own_clock();
	e.end = e.start + ns;
	write_record(&e, name);
	pthread_mutex_unlock(&lock);
	call_back(1, 1, 307, e.correlation, &inner), call_back(1, 2, 211, e.correlation, &data);
	return e.correlation;
}

// A fork acquires the lock, so that it is not locked forever in the child, which has only the forking thread.
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void hear_of_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

// stub_calls returns the number of CUPTI calls.
int stub_calls(void) { return calls; }
