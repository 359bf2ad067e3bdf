// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Functions that associate a program's next kernels with a span. A C or C++ program includes this header and links
// nothing (before glibc 2.34: -ldl): the calls do nothing unless the driver has loaded libotelgpu_capture.so.
//
//     #include "otelgpu.h"
//     otelgpu_push("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");  // the W3C traceparent of the current
// span
//     kernel<<<...>>>(...);
//     otelgpu_pop();
//
// Kernels of a batch link to the requests that it serves:
//
//     const char *requests[] = {"00-…-01", "00-…-01"};
//     otelgpu_push_batch(traceparent_or_NULL, requests, 2);  // at most 128; further ones are counted
//
// Pushes are per thread and nest; a kernel belongs to the newest push of the thread that launched it. Launches of the
// threads in which PyTorch runs the backward pass belong to the only thread with open spans. A text that is not a
// traceparent of version 00 pushes "no span", so that pops stay balanced.
#ifndef OTELGPU_H
#define OTELGPU_H

#include <dlfcn.h>
#include <stdlib.h>

// The driver loads the library outside of the program's symbol scope, so it is looked up by its path, once.
static inline void *otelgpu_find_(void **known, const char *name) {
	void *f = __atomic_load_n(known, __ATOMIC_ACQUIRE);
	const char *path = f ? NULL : getenv("CUDA_INJECTION64_PATH");
	void *lib = path && *path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (!lib) return f;
	f = dlsym(lib, name);
	__atomic_store_n(known, f, __ATOMIC_RELEASE);
	return f;
}

static inline void otelgpu_push(const char *traceparent) {
	static void *known;
	void (*push)(const char *) = (void (*)(const char *))(size_t)otelgpu_find_(&known, "otelgpu_push");
	if (push) push(traceparent);
}

static inline void otelgpu_push_batch(const char *traceparent, const char *const *requests, size_t count) {
	static void *known;
	void (*push)(const char *, const char *const *, size_t) =
		(void (*)(const char *, const char *const *, size_t))(size_t)otelgpu_find_(&known, "otelgpu_push_batch");
	if (push) push(traceparent, requests, count);
}

static inline void otelgpu_pop(void) {
	static void *known;
	void (*pop)(void) = (void (*)(void))(size_t)otelgpu_find_(&known, "otelgpu_pop");
	if (pop) pop();
}
#endif
