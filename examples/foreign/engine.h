/* Copyright The otelgpu Authors
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

/* engine_open loads the driver and leaves the device's context current on the calling thread; 0, a CUresult, or -1 and -2 for a library that
 * cannot be loaded and one that lacks a function. */
int engine_open(const char *library);

/* engine_run enqueues work on the engine's stream, between start and end; an event that is 0 is not recorded. */
int engine_run(uintptr_t start, uintptr_t end);

/* engine_wait waits for what was enqueued. */
int engine_wait(void);
