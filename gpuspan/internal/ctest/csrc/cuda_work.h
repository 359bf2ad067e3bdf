/* Copyright The otelgpu Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Second half of cuda.c: what an application does besides timing. */

/* ---- memory: host memory replaces the device's ---- */
struct block { size_t n, pad; };
static CUresult in_context(CUstream h, CUstream *s) {
	CUresult r = context_check(current());
	if (!r) r = resolve(h, s);
	if (r) return r;
	if (implicit(*s, 1)) return CAPTURE_IMPLICIT;
	return (*s)->capture == 2 ? CAPTURE_INVALIDATED : OK;
}
EXPORT CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
	READY("cuMemGetInfo_v2");
	CUresult r = context_check(current());
	if (!r) r = unsafe();
	if (r) return r;
	*left = memory_left();
	return *total = cfg.memory_total, OK;
}
EXPORT CUresult cuMemAlloc_v2(uint64_t *p, size_t n) {
	READY("cuMemAlloc_v2");
	CUresult r = context_check(current());
	if (!r) r = unsafe();
	if (r) return r;
	if (!n) return INVALID_VALUE;
	if ((int64_t)n > memory_left()) return OUT_OF_MEMORY;
	struct block *b = calloc(1, sizeof *b + n);
	b->n = n;
	__atomic_add_fetch(&cfg.memory_used, n, __ATOMIC_RELAXED);
	return *p = (uint64_t)(uintptr_t)(b + 1), OK;
}
EXPORT CUresult cuMemFree_v2(uint64_t p) {
	READY("cuMemFree_v2");
	if (!p) return OK;
	CUresult r = unsafe();
	if (r) return r;
	struct block *b = (struct block *)(uintptr_t)p - 1;
	__atomic_sub_fetch(&cfg.memory_used, b->n, __ATOMIC_RELAXED);
	free(b);
	return OK;
}
EXPORT CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	(void)flags;
	READY("cuMemHostAlloc");
	CUresult r = context_check(current());
	if (!r) r = unsafe();
	if (r) return r;
	return *p = calloc(1, n), OK;
}
EXPORT CUresult cuMemFreeHost(void *p) {
	READY("cuMemFreeHost");
	CUresult r = unsafe();
	if (r) return r;
	free(p);
	return OK;
}
static CUresult copy(const char *fn, void *dst, const void *src, size_t n, CUstream h) {
	READY(fn);
	CUstream s = NULL;
	CUresult r = in_context(h, &s);
	if (r) return r;
	if (s->capture) return OK;
	memcpy(dst, src, n);
	stream_work(s, cfg.launch_ns);
	return OK;
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(uint64_t d, const void *h, size_t n, CUstream s) { return copy("cuMemcpyHtoDAsync_v2", (void *)(uintptr_t)d, h, n, s); }
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *h, uint64_t d, size_t n, CUstream s) { return copy("cuMemcpyDtoHAsync_v2", h, (void *)(uintptr_t)d, n, s); }
EXPORT CUresult cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t x, size_t n, CUstream s) { return copy("cuMemcpyDtoDAsync_v2", (void *)(uintptr_t)d, (void *)(uintptr_t)x, n, s); }
EXPORT CUresult cuMemsetD8Async(uint64_t d, unsigned char v, size_t n, CUstream h) {
	READY("cuMemsetD8Async");
	CUstream s = NULL;
	CUresult r = in_context(h, &s);
	if (r) return r;
	if (s->capture) return OK;
	memset((void *)(uintptr_t)d, v, n);
	stream_work(s, cfg.launch_ns);
	return OK;
}

/* ---- modules: only the entries of PTX are parsed; kernels with known names run on the host as the examples' PTX
 * does ---- */
struct module { char *ptx; };
struct function { char name[64]; };
EXPORT CUresult cuModuleLoadDataEx(struct module **m, const char *image, unsigned n, int *options, void **values) {
	READY("cuModuleLoadDataEx");
	CUresult r = context_check(current());
	if (r) return r;
	if (!strstr(image, ".version") || !strstr(image, ".target") || !strstr(image, ".entry")) {
		for (unsigned i = 0; i < n; i++)
			if (options[i] == 5) strcpy(values[i], "ptxas fatal : stub: no .version, .target or .entry\n");
		return INVALID_PTX;
	}
	*m = calloc(1, sizeof **m);
	(*m)->ptx = strdup(image);
	return OK;
}
EXPORT CUresult cuModuleUnload(struct module *m) {
	READY("cuModuleUnload");
	free(m->ptx);
	free(m);
	return OK;
}
EXPORT CUresult cuModuleGetFunction(struct function **f, struct module *m, const char *name) {
	READY("cuModuleGetFunction");
	char entry[96] = ".entry ";
	strncat(entry, name, 60);
	strcat(entry, "(");
	if (!strstr(m->ptx, entry)) return NOT_FOUND;
	*f = calloc(1, sizeof **f);
	strncpy((*f)->name, name, 63);
	return OK;
}
#define ARG(type, i) (*(type *)params[i])
EXPORT CUresult cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream h,
                               void **params, void **extra) {
	(void)shared, (void)extra;
	READY("cuLaunchKernel");
	CUstream s = NULL;
	CUresult r = in_context(h, &s);
	if (r) return r;
	if (!gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024) return INVALID_VALUE;
	int spin = !strcmp(f->name, "spin"); /* (uint64 ns) */
	if (s->capture) return OK;
	stream_work(s, spin ? (double)ARG(uint64_t, 0) : cfg.launch_ns);
	uint64_t threads = (uint64_t)gx * bx;
	if (!strcmp(f->name, "copy")) { /* (float *dst, const float *src, uint32 n) */
		float *dst = ARG(float *, 0), *src = ARG(float *, 1);
		for (uint64_t i = 0; i < ARG(uint32_t, 2) && i < threads; i++) dst[i] = src[i];
	} else if (!strcmp(f->name, "saxpy")) { /* (float *y, const float *x, float a, uint32 n) */
		float *y = ARG(float *, 0), *x = ARG(float *, 1), a = ARG(float, 2);
		for (uint64_t i = 0; i < ARG(uint32_t, 3) && i < threads; i++) y[i] = fmaf(a, x[i], y[i]);
	} else if (!strcmp(f->name, "matmul")) { /* (float *c, const float *a, const float *b, uint32 n), square, n a multiple of the block */
		float *c = ARG(float *, 0), *a = ARG(float *, 1), *b = ARG(float *, 2);
		uint32_t n = ARG(uint32_t, 3);
		for (uint64_t y = 0; y < (uint64_t)gy * by && y < n; y++)
			for (uint64_t x = 0; x < threads && x < n; x++) {
				float sum = 0;
				for (uint32_t k = 0; k < n; k++) sum = fmaf(a[y * n + k], b[k * n + x], sum);
				c[y * n + x] = sum;
			}
	}
	return OK;
}
