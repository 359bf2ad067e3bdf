// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// A library that behaves like NVML, compiled with NVIDIA's own header: if the Go side reads a wrong offset, it gets a
// wrong value, because every field has a different value.

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

struct nvmlDevice_st { int number; };
static struct nvmlDevice_st board = {0}, mig = {1};
static int samples, sets, inits;

API nvmlReturn_t nvmlInit_v2(void) { inits++; return NVML_SUCCESS; }
API nvmlReturn_t nvmlShutdown(void) { return --inits == 0 && samples == 0 && sets == 0 ? NVML_SUCCESS : NVML_ERROR_IN_USE; }
// Behind the text of an unknown error is memory that cannot be read.
static const char *at_the_end_of_a_page(const char *text) {
    size_t page = sysconf(_SC_PAGESIZE), n = strlen(text) + 1;
    char *p = mmap(0, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mprotect(p + page, page, PROT_NONE), memcpy(p + page - n, text, n);
}
API const char *nvmlErrorString(nvmlReturn_t r) {
    return r == NVML_ERROR_UNKNOWN ? at_the_end_of_a_page("unknown") : r == NVML_ERROR_IN_USE ? "in use" : "another error";
}
API nvmlReturn_t nvmlSystemGetDriverVersion(char *s, unsigned n) { return strncpy(s, "580.95.05", n), NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) { return *n = 1, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) { return *d = &board, i == 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT; }
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *s, unsigned n) { return strncpy(s, d == &mig ? "MIG-5" : "GPU-5", n), NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *s, unsigned n) { return memset(s, 'x', n), s[n - 1] = 0, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) { return memset(p, 'y', sizeof *p), strcpy(p->busId, "00000000:A1:00.0"), NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
    if (m->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return m->total = 4, m->reserved = 5, m->free = 6, m->used = 7, NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *v) { return *v = 8, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t d, unsigned *v) { return *v = 9, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, unsigned *v) { return *v = 10, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *c, unsigned *p) { return *c = NVML_DEVICE_MIG_ENABLE, *p = 11, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *v) { return *v = 12, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned i, nvmlDevice_t *m) { return *m = &mig, i == 3 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND; }
API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned *v) { return *v = 13, d == &mig ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT; }
API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned *v) { return *v = 14, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a) {
    return a->multiprocessorCount = 15, a->gpuInstanceSliceCount = 16, a->computeInstanceSliceCount = 17, a->memorySizeMB = 18, NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *v) { return *v = 1ull << 40, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *v) {
    if (n != 1 || v->fieldId != NVML_FI_DEV_POWER_INSTANT) return NVML_ERROR_INVALID_ARGUMENT;
    return v->nvmlReturn = NVML_ERROR_NOT_FOUND, v->value.uiVal = 19, NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *v) { return *v = 20, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) { return u->gpu = 21, u->memory = 22, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *v) { return *v = 1ull << 41, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t k, unsigned *v) {
    return *v = k == NVML_CLOCK_GRAPHICS ? 23 : k == NVML_CLOCK_SM ? 24 : k == NVML_CLOCK_MEM ? 25 : k == NVML_CLOCK_VIDEO ? 26 : 0, NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t s, unsigned *v) { return *v = s == NVML_TEMPERATURE_GPU ? 27 : 0, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, unsigned *v, unsigned *p) { return *v = 28, *p = 1, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t d, unsigned *v, unsigned *p) { return *v = 29, *p = 1, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t k, nvmlEccCounterType_t c, unsigned long long *v) {
    return *v = c != NVML_VOLATILE_ECC ? 0 : k == NVML_MEMORY_ERROR_TYPE_CORRECTED ? 30 : k == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? 31 : 0, NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t d, unsigned *v) { return *v = 32, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *c, unsigned *u, unsigned *p, unsigned *f) { return *c = 33, *u = 34, *p = 1, *f = 0, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t d, nvmlPageRetirementCause_t k, unsigned *n, unsigned long long *a) {
    if (a) return NVML_ERROR_INVALID_ARGUMENT;
    return *n = k == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? 36 : 35, NVML_ERROR_INSUFFICIENT_SIZE;
}
API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *s) { return sets++, *s = (nvmlEventSet_t)&sets, NVML_SUCCESS; }
API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s) { return sets--, NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long k, nvmlEventSet_t s) {
    return k == nvmlEventTypeXidCriticalError && s == (nvmlEventSet_t)&sets ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *e, unsigned ms) {
    return e->device = &board, e->eventType = nvmlEventTypeXidCriticalError, e->eventData = 79, ms == 0 ? NVML_SUCCESS : NVML_ERROR_TIMEOUT;
}

// Operational events are in nvml.h since driver R615 (go-nvml v0.13.4); NVIDIA's binding of DCGM has an older header.
typedef struct { char uuid[96]; unsigned minLogLevel, minSeverity; } config_v1;
typedef struct {
    unsigned timeoutMs, dataType;
    char uuid[96], sourceModule[16];
    unsigned long long eventType, eventData, groupCursor, instanceId, timestampUsec, traceId;
    unsigned gpuInstanceId, computeInstanceId, severity, categoryId, moduleEventCode, scope, originator, moduleInstance, chipletId,
        logLevel, attributes, groupCperSize, groupAttributes;
    unsigned char groupSize, groupIndex;
} wait_v3;
typedef struct { unsigned count; } count_v1;
typedef struct { unsigned index, xidCode; } xid_v1;
static int delivered;
API nvmlReturn_t nvmlEventSetRegisterGpuOperationalEvents_v1(nvmlEventSet_t s, const config_v1 *c) {
    return strcmp(c->uuid, "GPU-5") == 0 && c->minLogLevel == 40 && c->minSeverity == 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
// An XID as an event bit and as an operational event, then an event of a group of two that repeats its group.
API nvmlReturn_t nvmlEventSetWait_v3(nvmlEventSet_t s, wait_v3 *w) {
    if (s != (nvmlEventSet_t)&sets || w->timeoutMs != 0 || delivered == 4) return NVML_ERROR_TIMEOUT;
    memset(w, 0, sizeof *w), strcpy(w->uuid, "GPU-5"), w->gpuInstanceId = w->computeInstanceId = ~0u;
    if (delivered++ == 0) return w->eventType = nvmlEventTypeXidCriticalError, w->eventData = 79, NVML_SUCCESS;
    w->dataType = 1, memcpy(w->sourceModule, "GPU-FIFTEEN-CHARS", 16), w->groupCursor = 51, w->instanceId = 52, w->traceId = 54;
    w->severity = 40, w->categoryId = 0x55, w->moduleEventCode = 0x56, w->scope = 57, w->originator = 58, w->moduleInstance = 59;
    w->chipletId = 60, w->logLevel = 50, w->attributes = delivered == 3 ? 1 << 5 : 0, w->groupCperSize = 62, w->groupAttributes = 63;
    w->groupSize = delivered > 2 ? 2 : 1, w->groupIndex = delivered - 3;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlEventSetGetContextCount_v1(nvmlEventSet_t s, count_v1 *c) { return c->count = delivered == 2 ? 2 : 0, NVML_SUCCESS; }
API nvmlReturn_t nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(nvmlEventSet_t s, xid_v1 *x) {
    return x->xidCode = 79, delivered == 2 && x->index == 1 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *s) {
    return s->isSupportedDevice = 1, s->version == NVML_GPM_SUPPORT_VERSION ? NVML_SUCCESS : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}
API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *s) { return samples++, *s = (nvmlGpmSample_t)(long)(100 + samples), NVML_SUCCESS; }
API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t s) { return samples--, NVML_SUCCESS; }
API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t d, nvmlGpmSample_t s) { return (long)s == 101 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT; }
API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t d, unsigned i, nvmlGpmSample_t s) { return i == 13 && (long)s == 102 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT; }
API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *g) {
    if (g->version != NVML_GPM_METRICS_GET_VERSION || (long)g->sample1 != 101 || (long)g->sample2 != 102) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < g->numMetrics; i++) {
        g->metrics[i].value = g->metrics[i].metricId + 0.5;
        g->metrics[i].nvmlReturn = g->metrics[i].metricId == NVML_GPM_METRIC_FP64_UTIL ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
    }
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *p) {
    if (*n < 20) return *n = 20, NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < 20; i++) p[i].pid = 1000 + i, p[i].usedGpuMemory = i == 7 ? NVML_VALUE_NOT_AVAILABLE : 1ull << 33;
    return *n = 20, NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *p, unsigned *n, unsigned long long seen) {
    if (seen == 1800000000000000ull) return NVML_ERROR_NOT_FOUND;
    if (*n < 200) return *n = 200, NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < 200; i++) p[i].pid = 1000 + i, p[i].timeStamp = seen + i, p[i].smUtil = i, p[i].memUtil = 1, p[i].encUtil = 2, p[i].decUtil = 3;
    return *n = 200, NVML_SUCCESS;
}
