// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// A library with NVML's calls whose device follows loads: each process writes when it began and ended to work into a
// file of the folder OTELGPU_STUB_LOADS, as doubles: its pid, how many times follow, and the times, of which the
// second, fourth, … begin a load. Two loads at once alternate, as processes that share a device do. Every instrument
// has a refresh period, a delay and an averaging window, which tests know.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOADS 3
#define EDGES 4000
#define IDLE 70.0 // W

static const char *names[LOADS] = {"load", "arithmetic", "memory"};
static const double watts[LOADS] = {530, 400, 180}; // above IDLE, while it has the device
static struct { double pid, count, at[EDGES]; } loads[LOADS];
static double fixed = -1, last_read = -1;
static int frozen, old_power;

void stub_freeze(int on) { frozen = on; } // the counter has no increase
void stub_no_instant(int on) { old_power = on; }

// The clock is the test's from the first call on.
void stub_time(double t) { fixed = t; }
void stub_forget(void) { last_read = -1; } // the files changed

static double now(void) {
    struct timespec t;
    return fixed >= 0 ? fixed : (clock_gettime(CLOCK_MONOTONIC, &t), t.tv_sec + 1e-9 * t.tv_nsec);
}

static double wall(double monotonic) {
    struct timespec t;
    return fixed >= 0 ? monotonic : (clock_gettime(CLOCK_REALTIME, &t), t.tv_sec + 1e-9 * t.tv_nsec - now() + monotonic);
}

static void divide(void);

static void update(void) {
    const char *folder = getenv("OTELGPU_STUB_LOADS");
    double t = now();
    if (!folder || (last_read >= 0 && t - last_read < (fixed >= 0 ? 1e9 : 0.01))) return;
    last_read = t;
    for (int i = 0; i < LOADS; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *f = fopen(path, "rb");
        if (!f) continue;
        double head[2];
        if (fread(head, sizeof *head, 2, f) == 2 && head[1] < EDGES && fread(loads[i].at, sizeof(double), head[1], f) == head[1])
            loads[i].pid = head[0], loads[i].count = head[1];
        fclose(f);
    }
    divide();
}

// Between two edges of any load, each of the users has the device for the same time.
static struct { double t; int busy[LOADS], users; double had[LOADS]; } parts[LOADS * EDGES + 1];
static int part_count;

static void divide(void) {
    int next[LOADS] = {0};
    part_count = 1;
    memset(parts, 0, sizeof *parts);
    for (;;) {
        int i = -1;
        for (int k = 0; k < LOADS; k++)
            if (next[k] < loads[k].count && (i < 0 || loads[k].at[next[k]] < loads[i].at[next[i]])) i = k;
        if (i < 0) return;
        parts[part_count] = parts[part_count - 1], parts[part_count].t = loads[i].at[next[i]];
        for (int k = 0; k < LOADS; k++)
            if (parts[part_count].busy[k]) parts[part_count].had[k] += (parts[part_count].t - parts[part_count - 1].t) / parts[part_count].users;
        next[i]++;
        parts[part_count].users += (next[i] > 0 && next[i] % 2 == 0) - parts[part_count].busy[i];
        parts[part_count].busy[i] = next[i] % 2 == 0;
        part_count++;
    }
}

// Returns how long a load had the device up to t.
static double had(int i, double t) {
    int low = 0, high = part_count;
    while (high - low > 1) *(parts[(low + high) / 2].t <= t ? &low : &high) = (low + high) / 2;
    return parts[low].had[i] + (parts[low].busy[i] ? (t - parts[low].t) / parts[low].users : 0);
}

static double energy(double t) {
    double joules = IDLE * t;
    for (int i = 0; i < LOADS; i++)
        if (loads[i].count) joules += watts[i] * had(i, t);
    return joules;
}

// Returns the time of which an instrument with a period and a delay shows the value, all in seconds.
static double shown(double period, double delay) { return fmax(0, floor(now() / period) * period - delay); }
static double mean(double window, double t) { // with a sensor's noise of 0.2 %
    return (energy(t) - energy(t - window)) / window * (0.999 + 0.002 * fmod(t * 7919.7, 1));
}
static double share(double window, double t) {
    double sum = 0;
    for (int i = 0; i < LOADS; i++) sum += had(i, t) - had(i, t - window);
    return sum / window;
}

double stub_had(int pid) { // s
    update();
    for (int i = 0; i < LOADS; i++)
        if (loads[i].pid == pid) return had(i, now());
    return 0;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return "an error"; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { return snprintf(s, n, "580.0"), 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { return *n = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { return *d = (void *)7, i ? 2 : 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { return snprintf(s, n, "GPU-00000000-0000-0000-0000-000000000007"), 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { return snprintf(s, n, "NVIDIA H100 PCIe"), 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *v) { return *v = 700000, 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *v) {
    static double still;
    update();
    if (!frozen || !still) still = energy(shown(0.1, 0.012)); // 100 ms, 12 ms late
    return *v = 1e9 + 1e3 * still, 0;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *v) { return update(), *v = 1e3 * mean(1, shown(0.1, 0.02)), 0; } // a mean of 1 s, 20 ms late
typedef struct { unsigned field, scope; long long timestamp, latency; unsigned type; int result; union { unsigned u; double d; } value; } field_value;
int nvmlDeviceGetFieldValues(void *d, int n, field_value *v) {
    update();
    v->value.d = -1;
    if (n != 1 || (v->field != 185 && v->field != 186)) return 2;
    if (v->field == 186 && old_power) return v->result = 3, 0; // not supported
    v->result = 0;
    v->value.u = 1e3 * (v->field == 186 ? mean(0.025, shown(0.1, 0.005)) : mean(1, shown(0.1, 0.02))); // 25 ms, 5 ms late
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned *u) { return update(), u[0] = round(100 * share(0.2, shown(0.2, 0))), u[1] = 9, 0; }
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *v) { return update(), *v = kind != 1 ? 1 : share(0.001, shown(0.02, 0)) > 0 ? 1980 : 345, 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *v) {
    return update(), *v = share(0.001, shown(0.04, 0)) > 0 ? 4 : 1, 0; // power cap, idle
}
typedef struct { unsigned pid; unsigned long long timestamp; unsigned sm, memory, encoder, decoder; } process;
int nvmlDeviceGetProcessUtilization(void *d, process *p, unsigned *n, unsigned long long since) {
    unsigned found = 0;
    update();
    // One sample of each process: its mean since the caller's last one. It appears 30 ms after its time.
    double t = floor((now() - 0.03) / 0.17) * 0.17, from = fmax(t - 6, since ? t - (1e6 * wall(t) - since) * 1e-6 : 0);
    for (int i = 0; i < LOADS && t - from > 0.1; i++) {
        double sm = (had(i, t) - had(i, from)) / (t - from);
        if (sm < 0.005) continue;
        if (found == *n) return 7;
        p[found++] = (process){loads[i].pid, 1e6 * wall(t) + 0.5, round(100 * sm), 1, 0, 0};
    }
    return *n = found, found ? 0 : 6;
}
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } running;
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, running *p) {
    unsigned found = 0;
    update();
    for (int i = 0; i < LOADS; i++)
        if (loads[i].pid) {
            if (found < *n) p[found] = (running){loads[i].pid, 1 << 30, ~0u, ~0u};
            found++;
        }
    int small = found > *n;
    return *n = found, small ? 7 : 0;
}
