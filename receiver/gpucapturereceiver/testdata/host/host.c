// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// A CUDA process for tests: it loads the library that CUDA_INJECTION64_PATH names and calls InitializeInjection, as
// libcuda does in cuInit, then executes each line of standard input and prints one line for it.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "otelgpu.h"

static uint32_t (*launch)(const char *, uint64_t);
static int (*calls)(void);
static int (*stamp)(uint64_t *);

static int threads(void) {
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void *worker(void *argument) {
	const char *parent = argument;
	for (int i = 0; i < 1000; i++) {
		otelgpu_push(parent);
		launch("worker_kernel", 1000);
		otelgpu_pop();
	}
	return NULL;
}

// backward launches a kernel in a thread with the name of those that PyTorch makes for the backward pass.
static void *backward(void *unused) {
	(void)unused;
	prctl(PR_SET_NAME, "pt_autograd_0");
	launch("backward_kernel", 1000);
	return NULL;
}

// hold has a span open until it is released.
static pthread_barrier_t held;
static void *hold(void *parent) {
	otelgpu_push(parent);
	pthread_barrier_wait(&held), pthread_barrier_wait(&held);
	otelgpu_pop();
	return NULL;
}

// As NVTX's header at the first range: two tables of pointers for the tool to fill in.
static int (*push_a)(const char *), (*pop_a)(void), (*push_ex)(void *, const void *), (*pop_ex)(void *);
typedef void (**slot)(void);
static slot core[16], core2[16];

static int nvtx_table(int module, slot **slots, unsigned *count) {
	core[9] = (slot)&push_a, core[11] = (slot)&pop_a;
	core2[4] = (slot)&push_ex, core2[5] = (slot)&pop_ex;
	*slots = module == 1 ? core : core2, *count = 16;
	return module == 1 || module == 5;
}

static struct { size_t size; int (*table)(int, slot **, unsigned *); } nvtx_callbacks = {16, nvtx_table};
static const void *nvtx_export(uint32_t id) { return id == 1 ? &nvtx_callbacks : NULL; }

int main(int argc, char **argv) {
	const char *path = getenv("CUDA_INJECTION64_PATH"), *driver = getenv("HOST_DRIVER");
	if (driver && !dlopen(driver, RTLD_NOW | RTLD_LOCAL)) {
		fprintf(stderr, "host: %s\n", dlerror());
		return 2;
	}
	if (path) {
		void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		int (*init)(void) = lib ? (int (*)(void))(size_t)dlsym(lib, "InitializeInjection") : NULL;
		if (!init) {
			fprintf(stderr, "host: %s\n", dlerror());
			return 2;
		}
		init();
	}
	const char *stub = getenv("OTELGPU_CUPTI_LIBRARY");
	void *cupti = stub && !getenv("HOST_NO_STUB") ? dlopen(stub, RTLD_NOW | RTLD_GLOBAL) : NULL;
	if (cupti) {
		launch = (uint32_t(*)(const char *, uint64_t))(size_t)dlsym(cupti, "stub_launch");
		calls = (int (*)(void))(size_t)dlsym(cupti, "stub_calls");
		stamp = (int (*)(uint64_t *))(size_t)dlsym(cupti, "cuptiGetTimestamp");
	}
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	pthread_t holder;
	char line[1 << 16], text[1 << 15];
	unsigned long long n;
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "launch %llu %32767[^\n]", &n, text) == 2) {
			// One pointer per text, as a kernel has one name.
			static char *names[4096];
			int i = 0;
			while (names[i] && strcmp(names[i], text)) i++;
			if (!names[i]) names[i] = strdup(text);
			printf("%u\n", launch(names[i], n));
		} else if (sscanf(line, "fresh %llu", &n) == 1) {
			// Launches n kernels with different names.
			for (unsigned long long i = 0; i < n; i++) {
				char *name;
				if (asprintf(&name, "kernel_number_%llu_with_a_longer_name", i) < 0) return 3;
				launch(name, 10);
			}
			printf("done\n");
		} else if (sscanf(line, "long %llu", &n) == 1) {
			char *name = malloc(n + 1);
			memset(name, 'n', n);
			name[n] = 0;
			printf("%u\n", launch(name, 10));
		} else if (strncmp(line, "push ", 5) == 0) {
			otelgpu_push(line + 5);
			printf("ok\n");
		} else if (strncmp(line, "batch ", 6) == 0) {
			// The span, or "-", and the requests.
			const char *requests[512], *parent = strtok(line + 6, " ");
			size_t count = 0;
			while (count < 512 && (requests[count] = strtok(NULL, " "))) count++;
			otelgpu_push_batch(strcmp(parent, "-") ? parent : NULL, requests, count);
			printf("ok\n");
		} else if (strcmp(line, "nvtx") == 0) {
			void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
			int (*init)(const void *(*)(uint32_t)) =
				(int (*)(const void *(*)(uint32_t)))(size_t)dlsym(lib, "InitializeInjectionNvtx2");
			printf("%d\n", init(nvtx_export));
		} else if (strncmp(line, "range ", 6) == 0) {
			push_a(line + 6);
			printf("ok\n");
		} else if (strncmp(line, "domain ", 7) == 0) {
			char event[48] = {3};
			uint16_t size = 48;
			int32_t type = 1;
			const char *message = line + 7;
			memcpy(event + 2, &size, 2), memcpy(event + 32, &type, 4), memcpy(event + 40, &message, 8);
			push_ex(NULL, event);
			printf("ok\n");
		} else if (strcmp(line, "rangepop") == 0) {
			pop_a();
			printf("ok\n");
		} else if (strcmp(line, "domainpop") == 0) {
			pop_ex(NULL);
			printf("ok\n");
		} else if (strcmp(line, "pop") == 0) {
			otelgpu_pop();
			printf("ok\n");
		} else if (strcmp(line, "calls") == 0) {
			printf("%d\n", calls());
		} else if (strcmp(line, "stamp") == 0) {
			uint64_t t = 0;
			stamp(&t);
			printf("%llu\n", (unsigned long long)t);
		} else if (strcmp(line, "threads") == 0) {
			printf("%d\n", threads());
		} else if (strncmp(line, "workers ", 8) == 0) {
			pthread_t t[8];
			for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, worker, line + 8);
			for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
			printf("done\n");
		} else if (strcmp(line, "backward") == 0) {
			pthread_t t;
			pthread_create(&t, NULL, backward, NULL), pthread_join(t, NULL);
			printf("done\n");
		} else if (strcmp(line, "hold") == 0) {
			pthread_barrier_init(&held, NULL, 2);
			pthread_create(&holder, NULL, hold, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
			pthread_barrier_wait(&held);
			printf("ok\n");
		} else if (strcmp(line, "release") == 0) {
			pthread_barrier_wait(&held), pthread_join(holder, NULL);
			printf("ok\n");
		} else if (strcmp(line, "fork") == 0) {
			fflush(stdout);
			pid_t child = fork();
			if (child == 0) {
				otelgpu_push("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
				launch("child_kernel", 5);
				otelgpu_pop();
				_exit(0);
			}
			int status;
			waitpid(child, &status, 0);
			printf("child %d\n", status);
		} else if (strcmp(line, "exec") == 0) {
			execv("/proc/self/exe", argv);
			printf("no\n");
		} else if (strcmp(line, "exit") == 0) {
			return argc - argc;
		} else {
			printf("what?\n");
		}
		fflush(stdout);
	}
	return 0;
}
