/* Copyright The otelgpu Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A stub of libamdhip64 for tests, on the same virtual clock as the stub of libcuda. What differs: the current device is a
 * number per thread, a record needs none for explicit streams, elapsed times are rounded twice and may be negative, and an event
 * recorded when nothing ran on the stream since the last one shares its marker (older ROCm), in which case elapsed waits for a new marker. */
#include "gpu.h"

typedef int hipError_t;
typedef struct stream *hipStream_t;
typedef struct event *hipEvent_t;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_HANDLE = 400, NOT_READY = 600, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907 };

static __thread int device;
static struct ctx devices[16];
static int64_t shared_markers; /* records that shared a marker, waits for new ones */
static int64_t marker_waits;

EXPORT hipError_t hipInit(unsigned flags) {
	FAULT("hipInit");
	if (flags) return INVALID_VALUE;
	if (!cfg.devices) return NO_DEVICE;
	for (int i = 0; i < 16; i++) devices[i].magic = CTX, devices[i].device = i;
	return OK;
}
EXPORT hipError_t hipDriverGetVersion(int *v) { return *v = 60342133, OK; }
EXPORT const char *hipGetErrorName(hipError_t e) { return e == NO_DEVICE ? "hipErrorNoDevice" : e == INVALID_DEVICE ? "hipErrorInvalidDevice" : "hipErrorUnknown"; }
EXPORT const char *hipGetErrorString(hipError_t e) { return e == NO_DEVICE ? "no ROCm-capable device is detected" : "unknown error"; }
#define DEVICE(d) \
	if (d < 0 || d >= cfg.devices) return INVALID_DEVICE
EXPORT hipError_t hipGetDeviceCount(int *n) {
	FAULT("hipGetDeviceCount");
	return *n = cfg.devices, OK;
}
EXPORT hipError_t hipDeviceGet(int *d, int ordinal) {
	DEVICE(ordinal);
	return *d = ordinal, OK;
}
EXPORT hipError_t hipDeviceGetName(char *s, int n, int d) {
	FAULT("hipDeviceGetName");
	DEVICE(d);
	strncpy(s, "AMD Instinct Stub", n - 1);
	s[n - 1] = 0;
	return OK;
}
EXPORT hipError_t hipDeviceGetUuid(char *u, int d) { /* 16 characters, not 16 bytes */
	FAULT("hipDeviceGetUuid");
	DEVICE(d);
	memset(u, 0, 16);
	if (cfg.uuid_form == 0) memcpy(u, "1a2b3c4d5e6f7080", 16), u[15] = (char)('0' + d);
	if (cfg.uuid_form == 1)
		for (int i = 0; i < 16; i++) u[i] = (char)(i + 0x10);
	if (cfg.uuid_form == 2) memcpy(u, "XX", 2);
	return OK;
}
EXPORT hipError_t hipDeviceGetPCIBusId(char *s, int n, int d) {
	FAULT("hipDeviceGetPCIBusId");
	DEVICE(d);
	static const char id[] = "0000:C1:00.0";
	if (n < (int)sizeof id) return INVALID_VALUE;
	memcpy(s, id, sizeof id);
	return OK;
}
EXPORT hipError_t hipDeviceTotalMem(size_t *n, int d) {
	FAULT("hipDeviceTotalMem");
	DEVICE(d);
	return *n = cfg.memory_total, OK;
}
EXPORT hipError_t hipGetDevice(int *d) { return *d = device, OK; }
EXPORT hipError_t hipSetDevice(int d) {
	FAULT("hipSetDevice");
	DEVICE(d);
	return device = d, OK;
}
EXPORT hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 1, *greatest = -1, OK; }
EXPORT hipError_t hipMemGetInfo(size_t *left, size_t *total) {
	FAULT("hipMemGetInfo");
	hipError_t r = unsafe();
	if (r) return r;
	*left = memory_left();
	return *total = cfg.memory_total, OK;
}
EXPORT hipError_t hipMalloc(void **p, size_t n) {
	FAULT("hipMalloc");
	hipError_t r = unsafe();
	if (r) return r;
	return *p = calloc(1, n), OK;
}
EXPORT hipError_t hipFree(void *p) {
	hipError_t r = unsafe();
	if (r) return r;
	return free(p), OK;
}

/* dead returns the status for an event that was destroyed, or never was one. */
static hipError_t dead(hipEvent_t e) { return e && e->magic == DEAD ? COUNT(dead_uses) : 0, INVALID_HANDLE; }

static hipError_t resolve(hipStream_t h, hipStream_t *out) {
	if ((uintptr_t)h <= 2) {
		return *out = null_stream(&devices[device]), OK;
	}
	if (h->magic != STREAM) return h->magic == DEAD ? COUNT(dead_uses) : 0, INVALID_HANDLE;
	if (h->failed) return (hipError_t)h->failed;
	return *out = h, OK;
}
EXPORT hipError_t hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority) {
	FAULT("hipStreamCreateWithPriority");
	hipError_t r = unsafe();
	if (r) return r;
	hipStream_t s = calloc(1, sizeof *s);
	s->magic = STREAM, s->flags = flags, s->priority = priority, s->ctx = &devices[device];
	stream_add(s);
	return *out = s, OK;
}
EXPORT hipError_t hipStreamDestroy(hipStream_t s) {
	if (!s || s->magic != STREAM) return s && s->magic == DEAD ? COUNT(dead_uses) : 0, INVALID_HANDLE;
	stream_remove(s);
	return OK;
}
EXPORT hipError_t hipStreamGetDevice(hipStream_t h, int *d) {
	FAULT("hipStreamGetDevice");
	hipStream_t s = NULL;
	hipError_t r = resolve(h, &s);
	if (r) return r;
	return *d = s->ctx->device, OK;
}
EXPORT hipError_t hipStreamIsCapturing(hipStream_t h, int *state) {
	FAULT("hipStreamIsCapturing");
	hipStream_t s = NULL;
	hipError_t r = resolve(h, &s);
	if (r) return r;
	if (implicit(s, 0)) return CAPTURE_IMPLICIT;
	return *state = s->capture, OK;
}
EXPORT hipError_t hipThreadExchangeStreamCaptureMode(int *mode) {
	FAULT("hipThreadExchangeStreamCaptureMode");
	int old = thread_mode;
	thread_mode = *mode;
	return *mode = old, OK;
}
EXPORT hipError_t hipStreamBeginCapture(hipStream_t s, int mode) {
	if (s->magic != STREAM || s->capture) return INVALID_HANDLE;
	capture_begin(s, mode);
	return OK;
}
EXPORT hipError_t hipStreamEndCapture(hipStream_t s, void **graph) {
	if (!s->capture) return INVALID_VALUE;
	if (capture_end(s) == 2) return *graph = NULL, CAPTURE_INVALIDATED;
	return *graph = s, OK;
}
EXPORT hipError_t hipMemsetAsync(void *p, int v, size_t n, hipStream_t h) {
	FAULT("hipMemsetAsync");
	hipStream_t s = NULL;
	hipError_t r = resolve(h, &s);
	if (r) return r;
	if (implicit(s, 1)) return CAPTURE_IMPLICIT;
	if (s->capture) return s->capture == 2 ? CAPTURE_INVALIDATED : OK;
	memset(p, v, n);
	stream_work(s, 1000);
	return OK;
}

EXPORT hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags) {
	FAULT("hipEventCreateWithFlags");
	if (flags & 2) return INVALID_VALUE;
	hipEvent_t e = calloc(1, sizeof *e);
	e->magic = EVENT, e->ctx = &devices[device];
	COUNT(live_events);
	return *out = e, OK;
}
EXPORT hipError_t hipEventDestroy(hipEvent_t e) {
	if (!e || e->magic != EVENT) return dead(e);
	e->magic = DEAD;
	__atomic_sub_fetch(&live_events, 1, __ATOMIC_RELAXED);
	return OK;
}
EXPORT hipError_t hipEventRecord(hipEvent_t e, hipStream_t h) {
	FAULT("hipEventRecord");
	COUNT(records);
	if (!e || e->magic != EVENT) return dead(e);
	hipStream_t s = NULL;
	hipError_t r = resolve(h, &s);
	if (r) return r;
	if (implicit(s, 1)) return CAPTURE_IMPLICIT;
	if (s->capture == 2) return CAPTURE_INVALIDATED;
	if (s->capture) {
		e->captured = 1, e->stream = s;
		return OK;
	}
	if (e->ctx != s->ctx) return INVALID_HANDLE;
	if (cfg.share_markers && s->last && s->last->magic == EVENT && s->last->stream == s && s->last->host == s->busy_until) { /* nothing ran since: the marker is shared */
		e->host = s->last->host, e->gpu = s->last->gpu, e->ready = s->last->ready;
		e->stream = s, e->captured = 0, e->recorded = 1;
		stream_log(s, e);
		COUNT(shared_markers);
		return OK;
	}
	stream_stamp(s, e);
	s->last = e;
	return OK;
}
static hipError_t check(hipEvent_t e) {
	if (!e || e->magic != EVENT) return dead(e);
	if (e->captured) {
		if (e->stream->capture) e->stream->capture = 2;
		return CAPTURED_EVENT;
	}
	if (e->stream && e->stream->failed) return (hipError_t)e->stream->failed;
	return unsafe();
}
EXPORT hipError_t hipEventQuery(hipEvent_t e) {
	FAULT("hipEventQuery");
	COUNT(queries);
	hipError_t r = check(e);
	if (r) return r;
	return event_done(e) ? OK : NOT_READY;
}
EXPORT hipError_t hipEventSynchronize(hipEvent_t e) {
	FAULT("hipEventSynchronize");
	COUNT(synchronizes);
	hipError_t r = check(e);
	if (r) return r;
	if (e->recorded) host_wait(e->ready);
	return OK;
}
EXPORT hipError_t hipEventElapsedTime(float *ms, hipEvent_t a, hipEvent_t b) {
	FAULT("hipEventElapsedTime");
	COUNT(elapseds);
	hipError_t r;
	if ((r = check(a)) || (r = check(b))) return r;
	if (a->ctx != b->ctx || !a->recorded || !b->recorded) return INVALID_HANDLE;
	if (!event_done(a) || !event_done(b)) return NOT_READY;
	if (a != b && a->stream == b->stream && a->host == b->host) { /* one shared marker: enqueues a new one after all work and waits for it */
		COUNT(marker_waits);
		stream_work(a->stream, 0);
		host_wait(a->stream->busy_until);
		return *ms = (float)(int64_t)(gpu_clock(a->stream->busy_until) - a->gpu) * 1e-6f, OK;
	}
	return *ms = (float)(int64_t)(b->gpu - a->gpu) * 1e-6f, OK;
}
EXPORT int64_t stub_markers(int waits) { return waits ? marker_waits : shared_markers; }
EXPORT int stub_device(void) { return device; }
EXPORT int stub_stream_flags(hipStream_t s) { return s->flags; }
EXPORT int stub_stream_priority(hipStream_t s) { return s->priority; }
