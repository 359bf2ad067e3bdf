// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

#include "cupti.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *open_library(void) {
	static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so.11.7",
		"libcupti.so.11.6", "libcupti.so"};
	const char *given = getenv("OTELGPU_CUPTI_LIBRARY");
	if (given && *given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
	// A library that the process has already loaded (PyTorch ships its own) matches its driver.
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void *lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
		if (lib) return lib;
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void *lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (lib) return lib;
	}
	return NULL;
}

int cupti_load(struct cupti *out, char *message, size_t size) {
	void *lib = open_library();
	if (!lib) {
		const char *why = dlerror();
		snprintf(message, size, "cannot open libcupti: %.180s (install CUPTI or set OTELGPU_CUPTI_LIBRARY)", why ? why : "-");
		return -1;
	}
	const struct { const char *name; void *to; int required; } symbols[] = {
		{"cuptiGetVersion", &out->get_version, 1},
		{"cuptiGetTimestamp", &out->get_timestamp, 1},
		{"cuptiSubscribe", &out->subscribe, 1},
		{"cuptiUnsubscribe", &out->unsubscribe, 1},
		{"cuptiActivityEnable", &out->activity_enable, 1},
		{"cuptiActivityDisable", &out->activity_disable, 1},
		{"cuptiActivityRegisterCallbacks", &out->activity_register, 1},
		{"cuptiActivityGetNextRecord", &out->activity_next, 1},
		{"cuptiActivityFlushAll", &out->activity_flush_all, 1},
		{"cuptiActivityGetNumDroppedRecords", &out->activity_dropped, 1},
		{"cuptiEnableCallback", &out->enable_callback, 1},
		{"cuptiGetCallbackName", &out->callback_name, 1},
		{"cuptiActivityRegisterTimestampCallback", &out->register_clock, 0},
		{"cuptiGetResultString", &out->result_string, 0},
	};
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlsym(lib, symbols[i].name);
		if (!f && symbols[i].required) {
			snprintf(message, size, "libcupti has no %s: it is not one of CUDA 11, 12 or 13", symbols[i].name);
			return -1;
		}
		*(void **)symbols[i].to = f;
	}
	return 0;
}
