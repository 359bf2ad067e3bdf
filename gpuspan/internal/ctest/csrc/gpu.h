/* Copyright The otelgpu Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A GPU on a virtual clock. No threads: a stream is the time until which it is busy, a launch moves that time, a
 * recorded event takes it. The GPU's clock is offset + host time × (1 + drift), truncated to a tick. The host time is
 * CLOCK_MONOTONIC or, in manual mode, a number that the test moves. Times are nanoseconds. */
#ifndef GPU_H
#define GPU_H

#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- settings, all set by tests before use ---- */
static struct {
	int manual;
	int64_t now; /* manual host time */
	double drift_ppm, step_ppm;
	int64_t step_at; /* host time from which step_ppm is added to the drift */
	double offset, tick;
	double submit_ns, completion_ns, jitter_ns; /* latencies: fixed parts and mean of the random part */
	double launch_ns;                           /* default duration of a kernel or copy */
	int devices, mig;
	int uuid_form; /* HIP: 0 characters, 1 bytes, 2 "XX" (the device has none), 3 zeros */
	int record_needs_context; /* as a driver that must fail the self-test */
	int polls_need_context;   /* the same for query and elapsed */
	int share_markers;        /* HIP: an event shares the last one's marker if nothing ran since, as in older ROCm */
	int elapsed_one_way;      /* elapsed(later, earlier) returns an error */
	int64_t memory_total, memory_used;
} cfg;

#ifndef LAUNCH_NS
#define LAUNCH_NS 20000 /* duration of a kernel, copy or fill */
#endif

static void cfg_defaults(void) {
	memset(&cfg, 0, sizeof cfg);
	cfg.offset = 3.6e12;
	cfg.tick = 32;
	cfg.submit_ns = 3500;
	cfg.completion_ns = 1800;
	cfg.launch_ns = LAUNCH_NS;
	cfg.devices = 1;
	cfg.polls_need_context = cfg.share_markers = 1; /* every behavior that drivers are allowed */
	cfg.memory_total = 16ll << 30;
	cfg.memory_used = 1ll << 30;
}

static int64_t mono(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}
static int64_t host_now(void) { return cfg.manual ? __atomic_load_n(&cfg.now, __ATOMIC_RELAXED) : mono(); }

static int64_t memory_left(void) { return cfg.memory_total - __atomic_load_n(&cfg.memory_used, __ATOMIC_RELAXED); }

static double gpu_clock(int64_t host) {
	static int64_t first; /* fixed for this process: keeps doubles small */
	int64_t base = __atomic_load_n(&first, __ATOMIC_RELAXED), now = host > 1000000000ll ? host - 1000000000ll : 1;
	if (!base && __atomic_compare_exchange_n(&first, &base, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) base = now;
	double h = (double)(host - base), g = cfg.offset + h + h * cfg.drift_ppm * 1e-6;
	if (cfg.step_ppm != 0 && host > cfg.step_at) g += (double)(host - cfg.step_at) * cfg.step_ppm * 1e-6;
	if (cfg.tick > 0) g = floor(g / cfg.tick) * cfg.tick;
	return g;
}

static __thread uint64_t rng;
static double jitter(void) { /* exponential */
	if (cfg.jitter_ns <= 0) return 0;
	static uint64_t threads; /* each thread has its own reproducible sequence */
	if (!rng) rng = 0x9e3779b97f4a7c15ull * __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
	rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
	return -cfg.jitter_ns * log(((rng >> 11) + 1) / 9007199254740993.0);
}

/* ---- objects: never freed, so that a stale handle is recognised ---- */
enum { CTX = 0x43545831, STREAM = 0x53545231, EVENT = 0x45564e31, DEAD = 0x44454144 };

struct ctx {
	int magic, device, destroyed, primary, refs, generation; /* a reset starts a new one: old handles stay invalid */
	struct stream *null_stream;
};
struct entry { /* one record, for the ground truth */
	struct event *event;
	int64_t host;
};
struct stream {
	int magic, flags, priority, generation;
	struct ctx *ctx;
	int64_t busy_until; /* host time */
	int capture, capture_mode; /* 0 none, 1 active, 2 invalidated */
	pthread_t capturer;
	struct event *last; /* last record (HIP) */
	int64_t failed; /* status that every call returns from now on */
	struct entry *log;
	int64_t logged, log_size;
};
struct event {
	int magic, recorded, captured, generation;
	struct ctx *ctx;
	struct stream *stream;
	int64_t host, ready; /* host times of stamp and of its visibility */
	double gpu;
};

/* ---- error injection ---- */
struct fault {
	char name[48];
	int code;
	int64_t after, times;
};
static struct fault faults[16];
static int fault_count;
static int fault(const char *fn) {
	for (int i = 0; i < __atomic_load_n(&fault_count, __ATOMIC_ACQUIRE); i++)
		if (!strcmp(faults[i].name, fn)) {
			if (__atomic_sub_fetch(&faults[i].after, 1, __ATOMIC_RELAXED) >= 0) continue;
			if (__atomic_sub_fetch(&faults[i].times, 1, __ATOMIC_RELAXED) >= 0) return faults[i].code;
		}
	return 0;
}
#define FAULT(fn)                     \
	do {                              \
		int code_ = fault_count ? fault(fn) : 0; \
		if (code_) return code_;      \
	} while (0)

/* ---- counters of calls, for tests that the library does not make them ---- */
static int64_t records, queries, synchronizes, elapseds, live_events, live_streams;
static int64_t dead_destroys; /* of objects already destroyed with their context: undefined behavior */
static int64_t dead_uses;     /* of destroyed streams and events: undefined behavior, too */
#define COUNT(c) __atomic_add_fetch(&c, 1, __ATOMIC_RELAXED)
#define VALUE(c) __atomic_load_n(&c, __ATOMIC_RELAXED)

/* ---- streams that exist, and captures: the rules are the same for CUDA and HIP ---- */
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };
enum { STATUS_CAPTURE_UNSUPPORTED = 900, STATUS_CAPTURE_IMPLICIT = 906 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream **streams;
static int stream_count, captures;
static __thread int thread_mode; /* CAPTURE_GLOBAL */

/* null_stream returns the context's legacy stream, created at its first use. */
static struct stream *null_stream(struct ctx *c) {
	struct stream *s = __atomic_load_n(&c->null_stream, __ATOMIC_ACQUIRE);
	if (s) return s;
	pthread_mutex_lock(&lock);
	if (!(s = c->null_stream)) {
		s = calloc(1, sizeof *s);
		s->magic = STREAM, s->ctx = c, s->generation = c->generation;
		__atomic_store_n(&c->null_stream, s, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return s;
}

static void stream_add(struct stream *s) {
	pthread_mutex_lock(&lock);
	streams = realloc(streams, (stream_count + 1) * sizeof *streams);
	streams[stream_count++] = s;
	pthread_mutex_unlock(&lock);
	COUNT(live_streams);
}
static void stream_remove(struct stream *s) {
	s->magic = DEAD;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < stream_count; i++)
		if (streams[i] == s) streams[i] = streams[--stream_count];
	if (s->capture) captures--;
	pthread_mutex_unlock(&lock);
	__atomic_sub_fetch(&live_streams, 1, __ATOMIC_RELAXED);
}

/* unsafe handles a call that a thread must not make during captures: it fails, and invalidates them. */
static int unsafe(void) {
	if (!__atomic_load_n(&captures, __ATOMIC_ACQUIRE) || thread_mode == CAPTURE_RELAXED) return 0;
	int r = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < stream_count; i++) {
		struct stream *s = streams[i];
		if (!s->capture || s->capture_mode == CAPTURE_RELAXED) continue;
		int own = pthread_equal(s->capturer, pthread_self());
		if (own || (thread_mode == CAPTURE_GLOBAL && s->capture_mode == CAPTURE_GLOBAL)) s->capture = 2, r = STATUS_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* implicit reports whether a blocking stream of the context captures, which makes the legacy stream unusable: work on
 * it fails and invalidates those captures; querying its capture state only fails. */
static int implicit(struct stream *s, int work) {
	if (!__atomic_load_n(&captures, __ATOMIC_ACQUIRE) || s->ctx->null_stream != s) return 0;
	int r = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < stream_count; i++)
		if (streams[i]->capture && streams[i]->ctx == s->ctx && !(streams[i]->flags & 1)) {
			r = STATUS_CAPTURE_IMPLICIT;
			if (work) streams[i]->capture = 2;
		}
	pthread_mutex_unlock(&lock);
	return r;
}

static void capture_begin(struct stream *s, int mode) {
	pthread_mutex_lock(&lock);
	s->capture = 1, s->capture_mode = mode, s->capturer = pthread_self();
	captures++;
	pthread_mutex_unlock(&lock);
}

/* capture_end returns the capture's state: 1 valid, 2 invalidated. */
static int capture_end(struct stream *s) {
	pthread_mutex_lock(&lock);
	int state = s->capture;
	s->capture = 0;
	captures--;
	pthread_mutex_unlock(&lock);
	return state;
}

/* ---- work and timestamps ---- */
/* busy_until returns when the stream can start new work: the legacy stream waits for all blocking streams of its
 * context, and they wait for it. */
static int64_t busy_until(struct stream *s) {
	int64_t at = __atomic_load_n(&s->busy_until, __ATOMIC_RELAXED);
	struct stream *legacy = s->ctx->null_stream;
	if (!legacy || (s != legacy && s->flags & 1)) return at;
	if (s != legacy) {
		int64_t b = __atomic_load_n(&legacy->busy_until, __ATOMIC_RELAXED);
		return b > at ? b : at;
	}
	pthread_mutex_lock(&lock);
	for (int i = 0; i < stream_count; i++)
		if (streams[i]->ctx == s->ctx && !(streams[i]->flags & 1)) {
			int64_t b = __atomic_load_n(&streams[i]->busy_until, __ATOMIC_RELAXED);
			if (b > at) at = b;
		}
	pthread_mutex_unlock(&lock);
	return at;
}
static void stream_work(struct stream *s, double ns) {
	int64_t now = host_now(), at = busy_until(s);
	int64_t begin = now + (int64_t)cfg.submit_ns > at ? now + (int64_t)cfg.submit_ns : at;
	__atomic_store_n(&s->busy_until, begin + (int64_t)ns, __ATOMIC_RELAXED);
}

/* stream_log stores the true time of a record. */
static void stream_log(struct stream *s, struct event *e) {
	if (!s->log_size) return;
	s->log[s->logged % s->log_size] = (struct entry){e, e->host};
	__atomic_store_n(&s->logged, s->logged + 1, __ATOMIC_RELEASE);
}

static void stream_stamp(struct stream *s, struct event *e) {
	int64_t at = host_now() + (int64_t)(cfg.submit_ns + jitter()), busy = busy_until(s);
	if (busy > at) at = busy;
	e->host = at;
	e->gpu = gpu_clock(at);
	e->stream = s;
	e->captured = 0;
	e->recorded = 1;
	__atomic_store_n(&e->ready, at + (int64_t)(cfg.completion_ns + jitter()), __ATOMIC_RELEASE);
	__atomic_store_n(&s->busy_until, at, __ATOMIC_RELAXED);
	stream_log(s, e);
}

static int event_done(struct event *e) { return !e->recorded || host_now() >= __atomic_load_n(&e->ready, __ATOMIC_ACQUIRE); }

static void host_wait(int64_t until) {
	if (cfg.manual) {
		for (int64_t now = host_now(); now < until;) /* never undoes another thread's step */
			if (__atomic_compare_exchange_n(&cfg.now, &now, until, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
		return;
	}
	for (int64_t d; (d = until - mono()) > 0;) {
		struct timespec t = {d / 1000000000, d % 1000000000};
		nanosleep(&t, NULL);
	}
}

/* ---- control exports ---- */
EXPORT void stub_set(const char *name, double v) {
	if (!strcmp(name, "manual")) cfg.now = mono(), cfg.manual = v != 0;
	else if (!strcmp(name, "drift_ppm")) cfg.drift_ppm = v;
	else if (!strcmp(name, "step_ppm")) cfg.step_at = host_now(), cfg.step_ppm = v;
	else if (!strcmp(name, "offset")) cfg.offset = v;
	else if (!strcmp(name, "tick")) cfg.tick = v;
	else if (!strcmp(name, "submit_ns")) cfg.submit_ns = v;
	else if (!strcmp(name, "completion_ns")) cfg.completion_ns = v;
	else if (!strcmp(name, "jitter_ns")) cfg.jitter_ns = v;
	else if (!strcmp(name, "launch_ns")) cfg.launch_ns = v;
	else if (!strcmp(name, "devices")) cfg.devices = (int)v;
	else if (!strcmp(name, "mig")) cfg.mig = (int)v;
	else if (!strcmp(name, "uuid_form")) cfg.uuid_form = (int)v;
	else if (!strcmp(name, "record_needs_context")) cfg.record_needs_context = (int)v;
	else if (!strcmp(name, "elapsed_one_way")) cfg.elapsed_one_way = (int)v;
	else if (!strcmp(name, "polls_need_context")) cfg.polls_need_context = (int)v;
	else if (!strcmp(name, "share_markers")) cfg.share_markers = (int)v;
	else if (!strcmp(name, "memory_used")) cfg.memory_used = (int64_t)v;
	else abort(); /* a test uses an unknown setting */
}
EXPORT int64_t stub_now(void) { return host_now(); }
EXPORT void stub_advance(int64_t ns) { __atomic_add_fetch(&cfg.now, ns, __ATOMIC_RELAXED); }
EXPORT void stub_fail(const char *fn, int code, int64_t after, int64_t times) {
	struct fault *f = &faults[fault_count % 16];
	strncpy(f->name, fn, sizeof f->name - 1);
	f->code = code, f->after = after, f->times = times;
	__atomic_store_n(&fault_count, fault_count + 1, __ATOMIC_RELEASE);
}
EXPORT int64_t stub_count(const char *what) {
	if (!strcmp(what, "records")) return VALUE(records);
	if (!strcmp(what, "queries")) return VALUE(queries);
	if (!strcmp(what, "synchronizes")) return VALUE(synchronizes);
	if (!strcmp(what, "elapseds")) return VALUE(elapseds);
	if (!strcmp(what, "live_events")) return VALUE(live_events);
	if (!strcmp(what, "live_streams")) return VALUE(live_streams);
	if (!strcmp(what, "dead_destroys")) return VALUE(dead_destroys);
	if (!strcmp(what, "dead_uses")) return VALUE(dead_uses);
	abort();
}
EXPORT void stub_work(struct stream *s, double ns) { stream_work(s, ns); }
EXPORT void stub_log_start(struct stream *s, int64_t size) {
	s->log = calloc(size, sizeof *s->log);
	s->logged = 0;
	s->log_size = size;
}
EXPORT int64_t stub_log_len(struct stream *s) { return __atomic_load_n(&s->logged, __ATOMIC_ACQUIRE); }
EXPORT int64_t stub_log_at(struct stream *s, int64_t i) { return s->log[i % s->log_size].host; }
EXPORT void stub_stream_fail(struct stream *s, int64_t code) { s->failed = code; }

EXPORT int stub_empty(void *a, void *b) { return (void)a, (void)b, 0; } /* the cost of a call */
__attribute__((constructor)) static void init(void) { cfg_defaults(); }
#endif
