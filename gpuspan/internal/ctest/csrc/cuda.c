/* Copyright The otelgpu Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A stub of libcuda for tests: it obeys the documented rules on contexts, streams, events and captures, and nothing of it can
 * prove what a real driver does. Compile with -DOLD_DRIVER for a driver before CUDA 12.8 (no cuEventElapsedTime_v2) and
 * before 11.4 (no cuDeviceGetUuid_v2). */
#include "gpu.h"

typedef int CUresult;
typedef struct ctx *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
	INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, CONTEXT_DESTROYED = 709,
	CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908
};

static int initialized;
static struct ctx primary[16];

static __thread CUcontext stack[64];
static __thread int depth;

static CUcontext current(void) { return depth ? stack[depth - 1] : NULL; }

#define READY(fn) \
	FAULT(fn);    \
	if (!initialized) return NOT_INITIALIZED

/* dead returns the status for an event that was destroyed, or never was one. */
static CUresult dead(CUevent e) { return e && e->magic == DEAD ? COUNT(dead_uses) : 0, INVALID_HANDLE; }

static CUresult context_check(CUcontext c) { return !c ? INVALID_CONTEXT : c->destroyed ? CONTEXT_DESTROYED : OK; }

/* resolve turns a handle into a stream. NULL and 1 are the legacy stream of the current context. */
static CUresult resolve(CUstream h, CUstream *out) {
	if ((uintptr_t)h == 2) return INVALID_HANDLE; /* per-thread default: not emulated */
	if ((uintptr_t)h <= 1) {
		CUresult r = context_check(current());
		if (r) return r;
		*out = null_stream(current());
		return OK;
	}
	if (h->magic != STREAM) return h->magic == DEAD ? COUNT(dead_uses) : 0, INVALID_HANDLE;
	if (h->ctx->destroyed || h->generation != h->ctx->generation) return CONTEXT_DESTROYED;
	if (h->failed) return (CUresult)h->failed;
	*out = h;
	return OK;
}

EXPORT CUresult cuInit(unsigned flags) {
	FAULT("cuInit");
	if (flags) return INVALID_VALUE;
	if (!cfg.devices) return NO_DEVICE;
	for (int i = 0; i < 16; i++) primary[i].magic = CTX, primary[i].device = i, primary[i].primary = 1;
	initialized = 1;
	return OK;
}
EXPORT CUresult cuDriverGetVersion(int *v) {
	FAULT("cuDriverGetVersion");
#ifdef OLD_DRIVER
	*v = 11020;
#else
	*v = 12080;
#endif
	return OK;
}
EXPORT CUresult cuGetErrorName(CUresult c, const char **s) {
	static const struct { int code; const char *name; } names[] = {
		{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"}, {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
		{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"}, {INVALID_PTX, "CUDA_ERROR_INVALID_PTX"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
		{CONTEXT_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"}, {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
	};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].code == c) return *s = names[i].name, OK;
	return *s = NULL, INVALID_VALUE;
}
EXPORT CUresult cuGetErrorString(CUresult c, const char **s) {
	if (c == NO_DEVICE) return *s = "no CUDA-capable device is detected", OK;
	return *s = NULL, INVALID_VALUE;
}

/* ---- devices ---- */
#define DEVICE(d) \
	if (d < 0 || d >= cfg.devices) return INVALID_DEVICE
EXPORT CUresult cuDeviceGetCount(int *n) {
	READY("cuDeviceGetCount");
	*n = cfg.devices;
	return OK;
}
EXPORT CUresult cuDeviceGet(int *d, int ordinal) {
	READY("cuDeviceGet");
	DEVICE(ordinal);
	*d = ordinal;
	return OK;
}
EXPORT CUresult cuDeviceGetName(char *s, int n, int d) {
	READY("cuDeviceGetName");
	DEVICE(d);
	strncpy(s, cfg.mig ? "NVIDIA Stub GPU MIG 1g.18gb" : "NVIDIA Stub GPU", n - 1);
	s[n - 1] = 0;
	return OK;
}
static void uuid(unsigned char *u, int d, int instance) {
	for (int i = 0; i < 16; i++) u[i] = (unsigned char)(i * 17 + instance * 0x40);
	u[15] = (unsigned char)d;
}
EXPORT CUresult cuDeviceGetUuid(unsigned char *u, int d) {
	READY("cuDeviceGetUuid");
	DEVICE(d);
	return uuid(u, d, 0), OK;
}
#ifndef OLD_DRIVER
EXPORT CUresult cuDeviceGetUuid_v2(unsigned char *u, int d) {
	READY("cuDeviceGetUuid_v2");
	DEVICE(d);
	return uuid(u, d, cfg.mig), OK;
}
#endif
EXPORT CUresult cuDeviceGetPCIBusId(char *s, int n, int d) {
	READY("cuDeviceGetPCIBusId");
	DEVICE(d);
	static const char id[] = "0000:1A:00.0";
	if (n < (int)sizeof id) return INVALID_VALUE;
	memcpy(s, id, sizeof id);
	s[6] = (char)('A' + d);
	return OK;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t *n, int d) {
	READY("cuDeviceTotalMem_v2");
	DEVICE(d);
	return *n = cfg.memory_total, OK;
}
EXPORT CUresult cuDeviceGetAttribute(int *v, int attribute, int d) {
	READY("cuDeviceGetAttribute");
	DEVICE(d);
	*v = attribute == 16 ? 4 : attribute == 75 ? 9 : 0;
	return OK;
}

/* ---- contexts ---- */
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, int d) {
	READY("cuDevicePrimaryCtxRetain");
	DEVICE(d);
	pthread_mutex_lock(&lock);
	primary[d].refs++;
	primary[d].destroyed = 0;
	pthread_mutex_unlock(&lock);
	return *c = &primary[d], OK;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(int d) {
	READY("cuDevicePrimaryCtxRelease_v2");
	DEVICE(d);
	pthread_mutex_lock(&lock);
	CUresult r = primary[d].refs ? OK : INVALID_CONTEXT;
	if (!r && !--primary[d].refs) primary[d].destroyed = 1;
	pthread_mutex_unlock(&lock);
	return r;
}
EXPORT CUresult cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) {
	READY("cuDevicePrimaryCtxGetState");
	DEVICE(d);
	*flags = 0;
	return *active = primary[d].refs > 0, OK;
}
EXPORT int64_t stub_primary_refs(int d) { return __atomic_load_n(&primary[d].refs, __ATOMIC_RELAXED); }
EXPORT void stub_primary_reset(int d) { primary[d].destroyed = 1, primary[d].generation++, primary[d].null_stream = NULL; } /* as cudaDeviceReset */
EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, int d) {
	(void)flags;
	READY("cuCtxCreate_v2");
	DEVICE(d);
	CUcontext c = calloc(1, sizeof *c);
	c->magic = CTX, c->device = d, c->refs = 1;
	if (depth == 64) return INVALID_VALUE;
	stack[depth++] = c;
	return *out = c, OK;
}
EXPORT CUresult cuCtxDestroy_v2(CUcontext c) {
	READY("cuCtxDestroy_v2");
	if (!c || c->magic != CTX) return INVALID_CONTEXT;
	c->destroyed = 1;
	if (current() == c) depth--;
	return OK;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext c) {
	READY("cuCtxPushCurrent_v2");
	if (!c || c->magic != CTX || c->destroyed) return INVALID_CONTEXT;
	if (depth == 64) return INVALID_VALUE;
	stack[depth++] = c;
	return OK;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *c) {
	READY("cuCtxPopCurrent_v2");
	if (!depth) return INVALID_CONTEXT;
	return *c = stack[--depth], OK;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext *c) {
	READY("cuCtxGetCurrent");
	return *c = current(), OK;
}
EXPORT CUresult cuCtxGetDevice(int *d) {
	READY("cuCtxGetDevice");
	CUresult r = context_check(current());
	if (r) return r;
	return *d = current()->device, OK;
}
EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
	READY("cuCtxGetStreamPriorityRange");
	CUresult r = context_check(current());
	if (r) return r;
	*least = 0;
	return *greatest = -5, OK;
}
EXPORT CUresult cuCtxSynchronize(void) {
	READY("cuCtxSynchronize");
	CUresult r = context_check(current());
	if (!r) r = unsafe();
	if (r) return r;
	int64_t until = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < stream_count; i++) {
		int64_t at = __atomic_load_n(&streams[i]->busy_until, __ATOMIC_RELAXED);
		if (streams[i]->ctx == current() && at > until) until = at;
	}
	pthread_mutex_unlock(&lock);
	host_wait(until);
	return OK;
}
EXPORT int stub_depth(void) { return depth; }

/* ---- streams ---- */
/* The default memory pool has release threshold 0: memory freed on a stream stays in the pool until the host
 * synchronizes. */
static struct {
	uint64_t next;
	int64_t kept, size[64];
} pool;
static void pool_trim(void) {
	pthread_mutex_lock(&lock);
	cfg.memory_used -= pool.kept;
	pool.kept = 0;
	pthread_mutex_unlock(&lock);
}
EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
	READY("cuStreamCreateWithPriority");
	CUresult r = context_check(current());
	if (!r) r = unsafe();
	if (r) return r;
	CUstream s = calloc(1, sizeof *s);
	s->magic = STREAM, s->flags = flags, s->priority = priority, s->ctx = current(), s->generation = current()->generation;
	stream_add(s);
	return *out = s, OK;
}
EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
EXPORT int stub_stream_flags(CUstream s) { return s->flags; }
EXPORT int stub_stream_priority(CUstream s) { return s->priority; }
EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
	READY("cuStreamDestroy_v2");
	if (!s || s->magic != STREAM) return s && s->magic == DEAD ? COUNT(dead_uses) : 0, INVALID_HANDLE;
	if (s->ctx->destroyed || s->generation != s->ctx->generation) return COUNT(dead_destroys), CONTEXT_DESTROYED;
	stream_remove(s);
	return OK;
}
EXPORT CUresult cuStreamGetCtx(CUstream h, CUcontext *c) {
	READY("cuStreamGetCtx");
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	if (s->capture) return s->capture = 2, CAPTURE_UNSUPPORTED;
	return *c = s->ctx, OK;
}
EXPORT CUresult cuStreamSynchronize(CUstream h) {
	READY("cuStreamSynchronize");
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	if (s->capture) return s->capture = 2, CAPTURE_UNSUPPORTED;
	if ((r = unsafe())) return r;
	host_wait(__atomic_load_n(&s->busy_until, __ATOMIC_RELAXED));
	pool_trim();
	return OK;
}
EXPORT CUresult cuStreamIsCapturing(CUstream h, int *state) {
	READY("cuStreamIsCapturing");
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	if (implicit(s, 0)) return CAPTURE_IMPLICIT;
	return *state = s->capture, OK;
}
EXPORT CUresult cuStreamWaitEvent(CUstream h, CUevent e, unsigned flags) {
	(void)flags;
	READY("cuStreamWaitEvent");
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	if (!e || e->magic != EVENT) return dead(e);
	if (implicit(s, 1)) return CAPTURE_IMPLICIT;
	if (!s->capture && e->host > s->busy_until) s->busy_until = e->host;
	return OK;
}
/* An allocation is legal during capture: it becomes a node of the graph, and takes memory when that is launched. */
EXPORT CUresult cuMemAllocAsync(uint64_t *p, size_t n, CUstream h) {
	READY("cuMemAllocAsync");
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	if (!n || pool.next == 64) return INVALID_VALUE;
	if (implicit(s, 1)) return CAPTURE_IMPLICIT;
	if (s->capture == 2) return CAPTURE_INVALIDATED;
	pthread_mutex_lock(&lock);
	*p = ++pool.next << 32;
	if (!s->capture) {
		int64_t reused = pool.kept < (int64_t)n ? pool.kept : (int64_t)n;
		pool.kept -= reused;
		cfg.memory_used += (int64_t)n - reused;
		pool.size[pool.next - 1] = (int64_t)n;
	}
	pthread_mutex_unlock(&lock);
	return OK;
}
EXPORT CUresult cuMemFreeAsync(uint64_t p, CUstream h) {
	READY("cuMemFreeAsync");
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	uint64_t i = (p >> 32) - 1;
	if (i >= pool.next || (!s->capture && !pool.size[i])) return INVALID_VALUE;
	if (implicit(s, 1)) return CAPTURE_IMPLICIT;
	if (s->capture == 2) return CAPTURE_INVALIDATED;
	pthread_mutex_lock(&lock);
	if (!s->capture) pool.kept += pool.size[i], pool.size[i] = 0;
	pthread_mutex_unlock(&lock);
	return OK;
}
EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
	READY("cuThreadExchangeStreamCaptureMode");
	if (*mode < 0 || *mode > 2) return INVALID_VALUE;
	int old = thread_mode;
	thread_mode = *mode;
	return *mode = old, OK;
}
EXPORT CUresult cuStreamBeginCapture_v2(CUstream h, int mode) {
	READY("cuStreamBeginCapture_v2");
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	if (s->capture || s->ctx->null_stream == s) return CAPTURE_UNSUPPORTED;
	capture_begin(s, mode);
	return OK;
}
EXPORT CUresult cuStreamEndCapture(CUstream h, void **graph) {
	READY("cuStreamEndCapture");
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	if (!s->capture) return INVALID_VALUE;
	if (s->capture_mode != CAPTURE_RELAXED && !pthread_equal(s->capturer, pthread_self())) return CAPTURE_WRONG_THREAD;
	if (capture_end(s) == 2) return *graph = NULL, CAPTURE_INVALIDATED;
	return *graph = s, OK;
}

/* ---- events ---- */
EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags) {
	READY("cuEventCreate");
	CUresult r = context_check(current());
	if (!r) r = unsafe();
	if (r) return r;
	if (flags & 2) return INVALID_VALUE; /* DISABLE_TIMING: a timing library never sets it */
	CUevent e = calloc(1, sizeof *e);
	e->magic = EVENT, e->ctx = current(), e->generation = current()->generation;
	COUNT(live_events);
	return *out = e, OK;
}
EXPORT CUresult cuEventDestroy_v2(CUevent e) {
	READY("cuEventDestroy_v2");
	if (!e || e->magic != EVENT) return dead(e);
	if (e->ctx->destroyed || e->generation != e->ctx->generation) return COUNT(dead_destroys), CONTEXT_DESTROYED;
	e->magic = DEAD;
	__atomic_sub_fetch(&live_events, 1, __ATOMIC_RELAXED);
	return OK;
}
EXPORT CUresult cuEventRecord(CUevent e, CUstream h) {
	READY("cuEventRecord");
	COUNT(records);
	if (!e || e->magic != EVENT) return dead(e);
	CUstream s = NULL;
	CUresult r = resolve(h, &s);
	if (r) return r;
	if (cfg.record_needs_context && current() != s->ctx) return INVALID_CONTEXT;
	if (e->ctx != s->ctx) return INVALID_HANDLE;
	if (implicit(s, 1)) return CAPTURE_IMPLICIT;
	if (s->capture == 2) return CAPTURE_INVALIDATED;
	if (s->capture) {
		e->captured = 1, e->stream = s;
		return OK;
	}
	stream_stamp(s, e);
	return OK;
}
EXPORT CUresult cuEventRecordWithFlags(CUevent e, CUstream h, unsigned flags) {
	if (flags) return INVALID_VALUE; /* external nodes are not emulated */
	return cuEventRecord(e, h);
}
static CUresult event_check(CUevent e) {
	if (!e || e->magic != EVENT) return dead(e);
	if (cfg.polls_need_context && context_check(current())) return context_check(current());
	if (e->ctx->destroyed || e->generation != e->ctx->generation) return CONTEXT_DESTROYED;
	if (e->captured) {
		if (e->stream->capture) e->stream->capture = 2;
		return CAPTURED_EVENT;
	}
	if (e->stream && e->stream->failed) return (CUresult)e->stream->failed;
	return unsafe();
}
EXPORT CUresult cuEventQuery(CUevent e) {
	READY("cuEventQuery");
	COUNT(queries);
	CUresult r = event_check(e);
	if (r) return r;
	return event_done(e) ? OK : NOT_READY;
}
EXPORT CUresult cuEventSynchronize(CUevent e) {
	READY("cuEventSynchronize");
	COUNT(synchronizes);
	CUresult r = event_check(e);
	if (r) return r;
	if (e->recorded) host_wait(e->ready);
	return OK;
}
static CUresult elapsed(float *ms, CUevent a, CUevent b) {
	COUNT(elapseds);
	CUresult r;
	if ((r = event_check(a)) || (r = event_check(b))) return r;
	if (a->ctx->device != b->ctx->device || !a->recorded || !b->recorded) return INVALID_HANDLE;
	if (!event_done(a) || !event_done(b)) return NOT_READY;
	if (cfg.elapsed_one_way && b->gpu < a->gpu) return INVALID_VALUE;
	return *ms = (float)((b->gpu - a->gpu) / 1e6), OK;
}
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
	READY("cuEventElapsedTime");
	return elapsed(ms, a, b);
}
#ifndef OLD_DRIVER
EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) {
	READY("cuEventElapsedTime_v2");
	return elapsed(ms, a, b);
}
#endif

#include "cuda_work.h"
