/* Copyright The otelgpu Authors
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

/* engine_open loads the driver and makes the device's context current on the calling thread. It returns 0, a
 * CUresult, -1 if the library cannot be loaded, or -2 if it lacks a function. */
int engine_open(const char *library);

/* engine_run enqueues work on the engine's stream, between the events start and end, either of which may be 0. */
int engine_run(uintptr_t start, uintptr_t end);

/* engine_wait waits for the enqueued work. */
int engine_wait(void);
