// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// libotelgpu_capture.so: the driver loads it (CUDA_INJECTION64_PATH) and calls InitializeInjection within cuInit. It
// creates the ring and one thread that sleeps on the ring's `request` (a futex, without cost) until a Collector
// requests a window. Only then is libcupti opened; closing a window disables everything again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum { BUFFERS = 16, BUFFER_SIZE = 1 << 20 };
#define PATIENCE UINT64_C(2000000000) // ns

struct header *_Atomic the_ring;
struct cupti the_cupti;
_Atomic uint32_t open_window;

static bool loaded;                 // libcupti is open
static uint8_t *buffers;            // BUFFERS of BUFFER_SIZE, while a window is open
static uint64_t taken;              // bit mask of the buffers that CUPTI owns
static struct budget left;          // records that the window may still write
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of the four above; never locked by the program's threads
static _Atomic bool over_budget;

// find_limits queries what limits the blocks on a device; what an older driver does not know stays 0.
static void find_limits(struct limits *l, int (*attribute)(int *, int, int), int device) {
	// CUdevice_attribute
	const struct { uint32_t *to; int of; } list[] = {
		{&l->warp, 10}, {&l->multiprocessors, 16}, {&l->threads, 39}, {&l->major, 75}, {&l->minor, 76},
		{&l->shared_memory, 81}, {&l->registers, 82}, {&l->blocks, 106},
	};
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		int value = 0;
		if (attribute(&value, list[i].of, device) == 0 && value > 0) *list[i].to = (uint32_t)value;
	}
}

// find_devices queries the loaded driver for the devices without creating a context.
static void find_devices(struct header *h) {
	if (atomic_load(&h->devices)) return;
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!driver) return;
	int (*count)(int *) = NULL, (*get)(int *, int) = NULL, (*uuid)(uint8_t *, int) = NULL, (*name)(char *, int, int) = NULL;
	int (*attribute)(int *, int, int) = NULL;
	*(void **)&count = dlsym(driver, "cuDeviceGetCount");
	*(void **)&get = dlsym(driver, "cuDeviceGet");
	*(void **)&uuid = dlsym(driver, "cuDeviceGetUuid_v2"); // of the MIG instance, if there is one
	if (!uuid) *(void **)&uuid = dlsym(driver, "cuDeviceGetUuid");
	*(void **)&name = dlsym(driver, "cuDeviceGetName");
	*(void **)&attribute = dlsym(driver, "cuDeviceGetAttribute");
	int n = 0;
	if (!count || !get || !uuid || !name || count(&n) != 0) return;
	if (n > 16) n = 16;
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	for (int i = 0; i < n; i++) {
		int device;
		uint8_t u[16];
		if (get(&device, i) != 0) continue;
		if (attribute) find_limits(&h->limits[i], attribute, device);
		if (name(h->device[i].name, sizeof h->device[i].name, device) != 0) h->device[i].name[0] = 0;
		if (uuid(u, device) != 0) continue;
		bool mig = visible && strncmp(visible, "MIG-", 4) == 0;
		snprintf(h->device[i].id, sizeof h->device[i].id,
			"%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", mig ? "MIG" : "GPU", u[0], u[1], u[2],
			u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
	}
	atomic_store_explicit(&h->devices, (uint32_t)n, memory_order_release);
}

static _Atomic bool recording; // from before the first record of a window until after its last

// cupti_clock returns the time of a window's records. CUPTI cannot unregister a clock, so outside windows it returns
// the time of CUPTI's default clock, which a later profiler in the process expects.
static uint64_t cupti_clock(void) {
	return clock_ns(atomic_load_explicit(&recording, memory_order_acquire) ? CLOCK_MONOTONIC : CLOCK_REALTIME);
}

static void give_buffer(uint8_t **buffer, size_t *size, size_t *max_records) {
	*max_records = 0;
	*buffer = NULL;
	*size = 0;
	if (!atomic_load(&the_ring)) return; // a forked child, in which the lock may stay locked forever
	pthread_mutex_lock(&lock);
	for (int i = 0; buffers && i < BUFFERS; i++) {
		if (taken >> i & 1) continue;
		taken |= UINT64_C(1) << i;
		*buffer = buffers + (size_t)i * BUFFER_SIZE;
		*size = BUFFER_SIZE;
		break;
	}
	pthread_mutex_unlock(&lock);
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
	(void)size;
	struct header *h = atomic_load(&the_ring);
	if (!h) return; // as above
	pthread_mutex_lock(&lock);
	ptrdiff_t offset = buffers && buffer ? buffer - buffers : -1;
	if (offset >= 0 && offset < (ptrdiff_t)BUFFERS * BUFFER_SIZE) {
		take_buffer(h, &the_cupti, buffer, valid, &left);
		if (left.activities == 0) atomic_store(&over_budget, true);
		size_t dropped = 0;
		if (the_cupti.activity_dropped(context, stream, &dropped) == CUPTI_OK && dropped)
			atomic_fetch_add_explicit(&h->dropped_cupti, dropped, memory_order_relaxed);
		taken &= ~(UINT64_C(1) << (offset / BUFFER_SIZE));
	}
	pthread_mutex_unlock(&lock);
}

static void refuse(struct header *h, enum reason why, int result, const char *message) {
	const char *text = NULL;
	if (result && the_cupti.result_string) the_cupti.result_string(result, &text);
	snprintf(h->message, sizeof h->message, "%s%s%s", message, text ? ": " : "", text ? text : "");
	atomic_store(&h->cupti_result, (uint32_t)result);
	atomic_store(&h->reason, why);
	atomic_store_explicit(&h->state, STATE_REFUSED, memory_order_release);
}

// mark writes the current values of the clocks: the Collector interpolates records between the window's two marks. The
// clocks are read one after the other, and the thread may be preempted in between, so the fastest of several attempts
// is used.
static void mark(struct header *h, enum record_kind kind, uint32_t request) {
	struct record r = {.kind = (uint8_t)kind, .name = NAME_UNKNOWN, .b = request};
	uint64_t took = UINT64_MAX;
	for (int i = 0; i < 10 && took > 10000; i++) {
		uint64_t stamp = 0, begin = clock_ns(CLOCK_MONOTONIC);
		the_cupti.get_timestamp(&stamp);
		uint64_t wall = clock_ns(CLOCK_REALTIME), between = clock_ns(CLOCK_MONOTONIC) - begin;
		if (between >= took) continue;
		took = between;
		r.a = stamp, r.end = wall, r.start = begin + between / 2;
	}
	pthread_mutex_lock(&lock);
	ring_put(h, &r);
	pthread_mutex_unlock(&lock);
}

static const struct { uint32_t bit; int kind; } kinds[] = {
	{KIND_BIT_KERNEL, CUPTI_CONCURRENT_KERNEL}, {KIND_BIT_COPY, CUPTI_MEMCPY}, {KIND_BIT_COPY, CUPTI_MEMCPY_PEER},
	{KIND_BIT_MEMSET, CUPTI_MEMSET},
};

// sleep_on sleeps while the word has the value, or until the deadline (CLOCK_MONOTONIC, ns; 0: none).
static void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t deadline) {
	struct timespec t, *wait = NULL;
	if (deadline) {
		uint64_t now = clock_ns(CLOCK_MONOTONIC);
		if (now >= deadline) return;
		t = (struct timespec){(time_t)((deadline - now) / 1000000000u), (long)((deadline - now) % 1000000000u)};
		wait = &t;
	}
	syscall(SYS_futex, word, FUTEX_WAIT, value, wait, NULL, 0);
}

static void drain(struct header *h) {
	pthread_mutex_lock(&lock);
	calls_drain(h, &left);
	pthread_mutex_unlock(&lock);
}

// await_device waits until the device has finished what was launched in the window, at most PATIENCE: CUPTI returns a
// buffer early only if each of its records has its end.
static void await_device(void) {
	for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + PATIENCE; clock_ns(CLOCK_MONOTONIC) < end;) {
		the_cupti.activity_flush_all(0);
		pthread_mutex_lock(&lock);
		bool all_back = taken == 0;
		pthread_mutex_unlock(&lock);
		if (all_back) return;
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
}

// run_window records for the length that the Collector requested. Another CUPTI user in the process takes precedence.
static void run_window(struct header *h, uint32_t request) {
	uint64_t length = atomic_load(&h->window);
	uint32_t wanted = atomic_load(&h->kinds);
	char message[256];
	if (length == 0) return;
	if (length > 60 * UINT64_C(1000000000)) length = 60 * UINT64_C(1000000000);
	if (!loaded && cupti_load(&the_cupti, message, sizeof message) != 0) {
		refuse(h, REASON_NO_CUPTI, 0, message);
		return;
	}
	if (!ring_fill(h)) {
		refuse(h, REASON_MEMORY, 0, "no room for the ring's records (is /dev/shm full? a smaller OTELGPU_CAPTURE_RECORDS takes less)");
		return;
	}
	find_devices(h);
	void *subscriber = NULL;
	uint32_t version = 0;
	the_cupti.get_version(&version);
	atomic_store(&h->cupti_version, version);
	loaded = true;
	// 13 is CUDA 11.0; from CUDA 13 on, the toolkit's version precedes four digits.
	if (version < 13 || (version >= 1000 && version / 10000 != 13)) {
		snprintf(message, sizeof message, "libcupti is of version %u; this library reads the records of CUDA 11, 12 and 13", version);
		refuse(h, REASON_NO_CUPTI, 0, message);
		return;
	}
	int result = the_cupti.subscribe(&subscriber, on_call, NULL);
	if (result != CUPTI_OK) {
		refuse(h, result == CUPTI_MULTIPLE_SUBSCRIBERS ? REASON_BUSY : REASON_CUPTI_ERROR, result,
			result == CUPTI_MULTIPLE_SUBSCRIBERS ? "another profiler is active in this process" : "cannot subscribe to CUPTI");
		return;
	}
	void *memory = mmap(NULL, (size_t)BUFFERS * BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		refuse(h, REASON_MEMORY, 0, "no memory for CUPTI's buffers");
		the_cupti.unsubscribe(subscriber);
		return;
	}
	pthread_mutex_lock(&lock);
	buffers = memory;
	taken = 0;
	left.activities = atomic_load(&h->budget);
	left.others = left.activities > UINT64_MAX / 4 ? UINT64_MAX : 4 * left.activities;
	pthread_mutex_unlock(&lock);
	atomic_store(&over_budget, false);
	atomic_store_explicit(&recording, true, memory_order_release);
	if (the_cupti.register_clock) the_cupti.register_clock(cupti_clock);
	result = the_cupti.activity_register(give_buffer, completed);
	bool any = false, calls = wanted & (KIND_BIT_CONTEXT | KIND_BIT_CALL);
	// The calls before the activities and, at the end, after them, so that each kernel has its call.
	drain(NULL); // calls that ended after the last window
	if (calls) calls_enable(&the_cupti, subscriber, true);
	atomic_store_explicit(&open_window, request, memory_order_release);
	for (size_t i = 0; result == CUPTI_OK && i < sizeof kinds / sizeof *kinds; i++)
		// A driver without one kind (graphs before 11.7) supports the others.
		if (wanted & kinds[i].bit && the_cupti.activity_enable(kinds[i].kind) == CUPTI_OK) any = true;
	if (result != CUPTI_OK || !any) {
		refuse(h, REASON_CUPTI_ERROR, result, "CUPTI refuses to record");
	} else {
		atomic_store(&h->reason, REASON_NONE);
		mark(h, RECORD_WINDOW_BEGIN, request);
		atomic_fetch_add(&h->windows, 1);
		atomic_store_explicit(&h->state, STATE_OPEN, memory_order_release);
		uint64_t end = clock_ns(CLOCK_MONOTONIC) + length;
		for (;;) {
			uint64_t now = clock_ns(CLOCK_MONOTONIC);
			if (now >= end || atomic_load(&h->cancel) == request || atomic_load(&over_budget)) break;
			// CUPTI returns only full buffers; flushing every 10 ms lets the ring be read as it fills.
			uint64_t next = now + 10000000u;
			sleep_on(&h->cancel, atomic_load(&h->cancel), next < end ? next : end);
			the_cupti.activity_flush_all(0);
			drain(h);
		}
	}
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (wanted & kinds[i].bit) the_cupti.activity_disable(kinds[i].kind);
	if (any) mark(h, RECORD_WINDOW_END, request);
	atomic_store_explicit(&open_window, 0, memory_order_release);
	if (calls) calls_enable(&the_cupti, subscriber, false);
	await_device();
	the_cupti.activity_flush_all(1);
	drain(h);
	pthread_mutex_lock(&lock);
	bool all_back = taken == 0;
	buffers = NULL;
	pthread_mutex_unlock(&lock);
	atomic_store_explicit(&recording, false, memory_order_release); // before another tool can subscribe
	the_cupti.unsubscribe(subscriber);
	// A buffer that CUPTI does not return is never freed: losing 16 MiB is better than a write to freed memory.
	if (all_back) munmap(memory, (size_t)BUFFERS * BUFFER_SIZE);
	if (atomic_load(&over_budget)) atomic_store(&h->reason, REASON_BUDGET);
	if (atomic_load(&h->state) == STATE_OPEN) atomic_store_explicit(&h->state, STATE_IDLE, memory_order_release);
}

static void *wait_for_requests(void *argument) {
	struct header *h = argument;
	for (;;) {
		uint32_t request = atomic_load_explicit(&h->request, memory_order_acquire);
		uint32_t answered = atomic_load(&h->answered);
		if (request == answered) {
			sleep_on(&h->request, answered, 0);
			continue;
		}
		run_window(h, request);
		atomic_store_explicit(&h->answered, request, memory_order_release);
	}
	return NULL;
}

// A forked child has neither the thread nor the file lock; the ring belongs to the parent.
static void forked(void) {
	atomic_store(&the_ring, NULL);
	atomic_store(&open_window, 0);
}

static void start(void) {
	const char *folder = getenv("OTELGPU_CAPTURE_DIR");
	char message[512];
	if (!folder || !*folder) folder = "/dev/shm/otelgpu";
	struct header *h = ring_create(folder, message, sizeof message);
	if (!h) {
		// Messages are printed only on request, because standard error belongs to the program.
		if (getenv("OTELGPU_CAPTURE_VERBOSE")) fprintf(stderr, "otelgpu capture: off: %s\n", message);
		return;
	}
	pthread_atfork(NULL, NULL, forked);
	atomic_store(&the_ring, h);
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); // this thread must not handle the program's signals
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	pthread_t thread;
	if (pthread_create(&thread, &attributes, wait_for_requests, h) == 0)
		pthread_setname_np(thread, "otelgpu");
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// InitializeInjection is called by the driver; further calls (second context, NVTX) do nothing.
EXPORT int InitializeInjection(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, start);
	return 1;
}
