//go:build cgo && linux

/* Copyright The otelgpu Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A C library with its own private CUDA stream. For telemetry it only records two events
 * that its caller lends. */
#include "engine.h"

#include <dlfcn.h>
#include <stddef.h>

static struct {
	void *stream;
	unsigned long long memory;
	int (*record)(void *, void *);
	int (*memset8)(unsigned long long, unsigned char, size_t, void *);
	int (*synchronize)(void *);
} engine;

enum { BYTES = 1 << 20 };

int engine_open(const char *library) {
	void *lib = dlopen(library, RTLD_NOW);
	if (!lib) return -1;
	int (*init)(unsigned) = dlsym(lib, "cuInit");
	int (*retain)(void **, int) = dlsym(lib, "cuDevicePrimaryCtxRetain");
	int (*push)(void *) = dlsym(lib, "cuCtxPushCurrent_v2");
	int (*create)(void **, unsigned) = dlsym(lib, "cuStreamCreate");
	int (*alloc)(unsigned long long *, size_t) = dlsym(lib, "cuMemAlloc_v2");
	engine.record = dlsym(lib, "cuEventRecord");
	engine.memset8 = dlsym(lib, "cuMemsetD8Async");
	engine.synchronize = dlsym(lib, "cuStreamSynchronize");
	if (!init || !retain || !push || !create || !alloc || !engine.record || !engine.memset8 || !engine.synchronize) return -2;
	void *context = NULL;
	int r = init(0);
	if (!r) r = retain(&context, 0);
	if (!r) r = push(context); /* stays current on the calling thread, as after cudaSetDevice */
	if (!r) r = create(&engine.stream, 1);
	if (!r) r = alloc(&engine.memory, BYTES);
	return r;
}

int engine_run(uintptr_t start, uintptr_t end) {
	int r = start ? engine.record((void *)start, engine.stream) : 0;
	for (int i = 0; !r && i < 4; i++) r = engine.memset8(engine.memory, (unsigned char)i, BYTES, engine.stream);
	if (!r && end) r = engine.record((void *)end, engine.stream);
	return r;
}

int engine_wait(void) { return engine.synchronize(engine.stream); }
