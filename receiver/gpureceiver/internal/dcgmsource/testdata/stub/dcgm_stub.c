// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// A libdcgm.so.4 for tests, with an embedded host engine that behaves as observed on a real one: blanks by type,
// placeholder rows, retention, unique names of field groups, profiling watches that fail as a whole, hangs, kills and
// restarts. The rules of watches, with references to the source of DCGM 4.6.0:
//
//   - A watcher is a connection (DcgmWatcher::operator== compares type and connectionId, common/DcgmWatcher.cpp), kept
//     for each entity and field. Groups and field groups only list entities and fields.
//   - Watching again from the same connection replaces interval and retention, also by slower ones
//     (DcgmCacheManager::AddOrUpdateWatcher). Nothing is counted.
//   - So one removal ends several watches of a connection (DcgmCacheManager::RemoveWatcher, and for
//     profiling fields of Hopper and later DcgmGpmManager::RemoveWatcher), whichever groups it names.
//   - A field is sampled at the shortest interval of its watchers and kept for their longest retention
//     (DcgmCacheManager::UpdateWatchFromWatchers). Its samples stay after the last watcher is removed.
//   - The first watch of a field makes the engine read it at once, but only of a whole GPU (lastQueriedUsec in
//     DcgmCacheManager::AddEntityFieldWatch). Of an instance the next reading is an interval after the last one; until
//     then the newest value is an old one, possibly of an instance that had the same number before.
//   - A field of the whole engine (DRIVER_VERSION) that was watched through a GPU stays watched: the removal looks for the
//     GPU's own watch and returns DCGM_ST_NOT_WATCHED (DcgmCacheManager::RemoveEntityFieldWatch).
//   - Watches, groups and field groups of a connection are removed with it (OnConnectionRemove in DcgmHostEngineHandler.cpp).
//   - Each compute process is a separate sample (COMPUTE_PIDS in DcgmCacheManager::BufferOrCacheLatestGpuValue), all of one
//     reading with one time, which timeseries_insert (sdk/nvidia/nvml/common/timeseries.c) moves on by 1 us until it is
//     free: the n-th process has the time of the reading plus n-1 us. A device without processes has no sample. Memory that
//     the driver does not report is DCGM_INT64_NOT_SUPPORTED.
//   - The first reading is at the time of the watch, the next ones an interval after the one before. The fields of a reading are
//     read one after another, within a millisecond (BufferOrCacheLatestGpuValue takes the time for each). Fields with an
//     nvmlFieldId in dcgm_fields.cpp are read last, in one call, and have NVML's time (ActuallyUpdateGpuFvs).
//   - The driver's counter of energy can be older than its reading (refresh). If NVML states that older time (stamped), the
//     engine stores the readings of a period 1 us apart from it on, and behind what clients have read: they miss it. It then
//     also reads more often, because it takes that time for the time of the last reading (lastQueriedUsec).
//   - Errors of NVML become blanks by kind: not supported, not permitted, or plain for all others
//     (NvmlErrorToInt64Value in DcgmCacheManager.cpp), with status 0. Profiling values become plain ones by any error
//     (the result of DcgmGpmManager::GetLatestSample in BufferOrCacheLatestGpuValue).
//   - A profiling value needs two readings (DcgmGpmManagerEntity::GetLatestSample): the first one after a pause is blank.
//   - A reading of a lost board is repeated about ten times within a millisecond. No group accepts the board until
//     DcgmCacheManager::UpdateLostGpus finds it again.
// The test describes the machine in the file named by OTELGPU_DCGM_STUB, as lines "key value", which is read at every
// call. Samples are computed on request, so that a test can let days pass in an instant.
//
//   gpus N            boards                              gpm MASK       boards with profiling fields
//   mig N             GPU instances of board 0            old 1          a host engine that knows no field from 1084 on
//   down 1            no host engine (connecting fails)   epoch K        another number: the host engine was restarted
//   hang 1            every call blocks                   hangms MS      calls answer "timeout" after so long
//   detached 1        the driver is detached              lost MASK      boards that fell off the bus
//   unsupported LIST  fields with "not supported"         noperm LIST    fields with "not permissioned"
//   failing LIST      fields with another error
//   now US            the clock; without it the real one  fastest US     another client's watch
//   xid TS:GPU:CODE   an event (repeatable)               limit N        values that one read may give
//   foreign NAME      a field group of another client     refused MS     how long a refused connection takes
//   taken N           groups of other clients             profbusy 1     another profiler owns the counters
//   gsp MASK          boards that give blanks only, though their status is ok (what XID 119 leads to)
//   blankprof MASK    boards whose profiling values are blank while another profiler has paused them
//   frozen US         the driver hangs: nothing is sampled from then on
//   nouuid MASK       boards that do not say their UUID   jitter US      added to the times of XIDs in a later epoch
//   scale N           the power of every board, in W      process TS:GPU:PID:BYTES   seen at every reading from TS on
//   refresh US        the driver's period of the counter of energy
//   stamped 1         NVML's time of the counter is the time of its last change
//   transient N       the next N lists of GPUs fail with an error that is not of the connection
//   late N            the next N histories time out       broken N       the next N histories fail likewise
//   migat US          from then on the instances 16 and 17 have each other's UUID
//   host NAME         the machine; another name is another machine, whose host engine has no samples yet
//   fixed 1           this file is read once, and no statistics are written: for measuring what a client costs
//
// It counts round trips as the real client library makes them (two and one for each field of each entity for a history,
// one for the newest values), each with a buffer of 4 MiB that is cleared, into the file of statistics. Of one field
// and entity a history gives at most what a buffer holds, the oldest first, and says nothing of the rest. A power 157
// that the driver does not support is stored as 0 W with status 0. Samples outlive watches and connections, not the
// engine.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define DCGM_API_EXPORT
#include "dcgm_agent.h"
#include "dcgm_fields.h"
#include "dcgm_structs.h"

#define MAX_GROUPS 64
#define MAX_WATCHES 4096
#define MAX_XIDS 64
#define MAX_PROCESSES 512
#define BUILTIN 2

typedef struct { int64_t ts; unsigned gpu; int64_t code; } xid_t;

static struct {
    int gpus, gpm, mig, old, down, epoch, hang, hangms, detached, lost, refused, limit, taken, profbusy, gsp, blankprof, nouuid, transient, late,
        broken, fixed, stamped;
    int64_t now, fastest, frozen, jitter, scale, migat, refresh;
    unsigned short unsupported[64], noperm[64], failing[64];
    int n_unsupported, n_noperm, n_failing;
    xid_t xids[MAX_XIDS];
    int n_xids;
    char foreign[512], host[512];
    struct { int64_t ts; unsigned gpu, pid; unsigned long long bytes; } processes[MAX_PROCESSES];
    int n_processes;
} conf;

#define MAX_CONNECTIONS 16
#define MAX_SEGMENTS 8
#define MAX_FIELDS 128

// segment_t is a period during which a field of an entity is sampled at one interval; end is 0 while it lasts.
typedef struct { int64_t first, end, every; int blank; } segment_t;
typedef struct { int n; double keep; segment_t s[MAX_SEGMENTS]; } field_t;

static field_t polled[3][64][MAX_FIELDS];
static int connections[MAX_CONNECTIONS]; // epoch of each connection's engine; 0: free
static int polled_epoch, failed_lists, failed_histories;
static char polled_host[512];
static long long trips;
#define BUFFER (4 << 20)
#define PER_FIELD 130816 // values of 32 bytes in a buffer

// round_trip simulates the cost of a message with a buffer on either side.
static void round_trip(void) {
    trips++;
    char *buffer = malloc(BUFFER);
    memset(buffer, 0, BUFFER);
    __asm__ volatile("" : : "r"(buffer) : "memory");
    free(buffer);
}

typedef struct { int used, connection; int n; dcgmGroupEntityPair_t e[64]; } group_t;
typedef struct { int used, connection; char name[256]; int n; unsigned short id[128]; } fields_t;
typedef struct { int used, connection; dcgm_field_entity_group_t kind; dcgm_field_eid_t id; unsigned short field;
                 int64_t every; double keep; } watcher_t;

static group_t groups[MAX_GROUPS];
static fields_t field_groups[MAX_GROUPS];
static watcher_t watchers[MAX_WATCHES];
static int top; // watchers from this index on were never used
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

static int list_of(char *s, unsigned short *out) {
    int n = 0;
    for (char *t = strtok(s, ","); t && n < 64; t = strtok(NULL, ",")) out[n++] = (unsigned short)atoi(t);
    return n;
}

static void load(void) {
    if (conf.fixed) return;
    memset(&conf, 0, sizeof conf);
    conf.epoch = 1;
    conf.hangms = 60000;
    conf.refused = 50;
    const char *path = getenv("OTELGPU_DCGM_STUB");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f) return;
    char key[64], value[512];
    while (fscanf(f, "%63s %511s", key, value) == 2) {
        long long v = strtoll(value, NULL, 0);
        if (!strcmp(key, "gpus")) conf.gpus = v;
        else if (!strcmp(key, "gpm")) conf.gpm = v;
        else if (!strcmp(key, "mig")) conf.mig = v;
        else if (!strcmp(key, "old")) conf.old = v;
        else if (!strcmp(key, "down")) conf.down = v;
        else if (!strcmp(key, "epoch")) conf.epoch = v;
        else if (!strcmp(key, "hang")) conf.hang = v;
        else if (!strcmp(key, "hangms")) conf.hangms = v;
        else if (!strcmp(key, "detached")) conf.detached = v;
        else if (!strcmp(key, "lost")) conf.lost = v;
        else if (!strcmp(key, "refused")) conf.refused = v;
        else if (!strcmp(key, "limit")) conf.limit = v;
        else if (!strcmp(key, "taken")) conf.taken = v;
        else if (!strcmp(key, "profbusy")) conf.profbusy = v;
        else if (!strcmp(key, "gsp")) conf.gsp = v;
        else if (!strcmp(key, "blankprof")) conf.blankprof = v;
        else if (!strcmp(key, "nouuid")) conf.nouuid = v;
        else if (!strcmp(key, "transient")) conf.transient = v;
        else if (!strcmp(key, "late")) conf.late = v;
        else if (!strcmp(key, "broken")) conf.broken = v;
        else if (!strcmp(key, "fixed")) conf.fixed = v;
        else if (!strcmp(key, "frozen")) conf.frozen = v;
        else if (!strcmp(key, "jitter")) conf.jitter = v;
        else if (!strcmp(key, "scale")) conf.scale = v;
        else if (!strcmp(key, "refresh")) conf.refresh = v;
        else if (!strcmp(key, "migat")) conf.migat = v;
        else if (!strcmp(key, "now")) conf.now = v;
        else if (!strcmp(key, "fastest")) conf.fastest = v;
        else if (!strcmp(key, "unsupported")) conf.n_unsupported = list_of(value, conf.unsupported);
        else if (!strcmp(key, "stamped")) conf.stamped = v;
        else if (!strcmp(key, "failing")) conf.n_failing = list_of(value, conf.failing);
        else if (!strcmp(key, "noperm")) conf.n_noperm = list_of(value, conf.noperm);
        else if (!strcmp(key, "foreign")) snprintf(conf.foreign, sizeof conf.foreign, "%s", value);
        else if (!strcmp(key, "host")) snprintf(conf.host, sizeof conf.host, "%s", value);
        else if (!strcmp(key, "xid") && conf.n_xids < MAX_XIDS) {
            xid_t *x = &conf.xids[conf.n_xids++];
            long long ts, code;
            sscanf(value, "%lld:%u:%lld", &ts, &x->gpu, &code);
            x->ts = ts, x->code = code;
        }
        else if (!strcmp(key, "process") && conf.n_processes < MAX_PROCESSES) {
            long long ts;
            sscanf(value, "%lld:%u:%u:%llu", &ts, &conf.processes[conf.n_processes].gpu, &conf.processes[conf.n_processes].pid,
                   &conf.processes[conf.n_processes].bytes);
            conf.processes[conf.n_processes++].ts = ts;
        }
    }
    fclose(f);
    for (int k = 0; k < conf.n_xids && conf.epoch > 1; k++) conf.xids[k].ts += conf.jitter;
}

// refresh discards the state of a killed engine, and the samples of another machine.
static void refresh(void) {
    if (polled_epoch == conf.epoch && !strcmp(polled_host, conf.host)) return;
    memset(polled, 0, sizeof polled);
    if (polled_epoch != conf.epoch) {
        memset(groups, 0, sizeof groups);
        memset(field_groups, 0, sizeof field_groups);
        memset(watchers, 0, sizeof watchers);
    }
    polled_epoch = conf.epoch;
    strcpy(polled_host, conf.host);
}

// Handles of connections combine the engine's epoch and an index in connections.
#define FIRST_HANDLE 0x7fffff
static int index_of(dcgmHandle_t h) { return (int)(h - FIRST_HANDLE) % 64; }
static int epoch_of(dcgmHandle_t h) { return (int)(h - FIRST_HANDLE) / 64; }

// enter starts every call to the host engine; if it returns 0, mu is locked.
static dcgmReturn_t enter(dcgmHandle_t h) {
    pthread_mutex_lock(&mu);
    load();
    for (int waited = 0; conf.hang; waited += 5) {
        pthread_mutex_unlock(&mu);
        if (waited >= conf.hangms) return DCGM_ST_TIMEOUT;
        usleep(5000);
        pthread_mutex_lock(&mu);
        load();
    }
    trips++;
    if (h == 0) { pthread_mutex_unlock(&mu); return DCGM_ST_BADPARAM; }
    if (h < FIRST_HANDLE || index_of(h) >= MAX_CONNECTIONS) { pthread_mutex_unlock(&mu); return DCGM_ST_BADPARAM; }
    if (conf.down || epoch_of(h) != conf.epoch) { pthread_mutex_unlock(&mu); return DCGM_ST_CONNECTION_NOT_VALID; }
    if (connections[index_of(h)] != conf.epoch) { pthread_mutex_unlock(&mu); return DCGM_ST_BADPARAM; }
    refresh();
    return DCGM_ST_OK;
}

static void stats(void) {
    const char *path = getenv("OTELGPU_DCGM_STUB");
    char name[600], whole[600];
    if (!path || conf.fixed) return;
    snprintf(whole, sizeof whole, "%s.stats", path);
    snprintf(name, sizeof name, "%s.stats.new", path);
    FILE *f = fopen(name, "w");
    if (!f) return;
    int g = 0, fg = 0, w = 0;
    for (int i = 0; i < MAX_GROUPS; i++) g += groups[i].used, fg += field_groups[i].used;
    int64_t fastest = 0;
    for (int i = 0; i < top; i++) {
        w += watchers[i].used;
        if (watchers[i].used && (!fastest || watchers[i].every < fastest)) fastest = watchers[i].every;
    }
    fprintf(f, "groups %d fields %d watches %d\ntrips %lld\nfastest %lld\n", g, fg, w, trips, (long long)fastest);
    fclose(f);
    rename(name, whole);
}

static dcgmReturn_t leave(dcgmReturn_t r) {
    stats();
    pthread_mutex_unlock(&mu);
    return r;
}

static int64_t now_us(void) {
    if (conf.now) return conf.now;
    struct timeval tv;
    gettimeofday(&tv, NULL);
    return tv.tv_sec * 1000000LL + tv.tv_usec;
}

#define PUBLIC __attribute__((visibility("default")))

PUBLIC dcgmReturn_t dcgmInit(void) { return DCGM_ST_OK; }
PUBLIC dcgmReturn_t dcgmShutdown(void) { return DCGM_ST_OK; }

static dcgmReturn_t connect_engine(dcgmHandle_t *h) {
    pthread_mutex_lock(&mu);
    load();
    while (conf.hang) { // Init of a hung host engine never returns
        pthread_mutex_unlock(&mu);
        usleep(5000);
        pthread_mutex_lock(&mu);
        load();
    }
    if (conf.down) {
        pthread_mutex_unlock(&mu);
        usleep(conf.refused * 1000);
        return DCGM_ST_CONNECTION_NOT_VALID;
    }
    refresh();
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        if (connections[i] == conf.epoch) continue; // connections to a killed engine are free
        connections[i] = conf.epoch;
        *h = FIRST_HANDLE + 64 * conf.epoch + i;
        return leave(DCGM_ST_OK);
    }
    return leave(DCGM_ST_MAX_LIMIT);
}

PUBLIC dcgmReturn_t dcgmConnect_v2(const char *a, dcgmConnectV2Params_t *p, dcgmHandle_t *h) { (void)a, (void)p; return connect_engine(h); }
PUBLIC dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t m, dcgmHandle_t *h) { (void)m; return connect_engine(h); }

static void settle(dcgm_field_entity_group_t kind, dcgm_field_eid_t id, unsigned short field);

PUBLIC dcgmReturn_t dcgmDisconnect(dcgmHandle_t h) {
    pthread_mutex_lock(&mu);
    if (h < FIRST_HANDLE || index_of(h) >= MAX_CONNECTIONS) return leave(DCGM_ST_BADPARAM);
    int c = index_of(h);
    if (connections[c] != epoch_of(h)) return leave(DCGM_ST_OK);
    connections[c] = 0;
    if (epoch_of(h) != polled_epoch) return leave(DCGM_ST_OK);
    for (int i = 0; i < MAX_GROUPS; i++) {
        if (groups[i].connection == c) groups[i].used = 0;
        if (field_groups[i].connection == c) field_groups[i].used = 0;
    }
    for (int i = 0; i < top; i++)
        if (watchers[i].used && watchers[i].connection == c) {
            watchers[i].used = 0;
            settle(watchers[i].kind, watchers[i].id, watchers[i].field);
        }
    return leave(DCGM_ST_OK);
}
PUBLIC dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t h) { return dcgmDisconnect(h); }

PUBLIC const char *errorString(dcgmReturn_t r) {
    switch (r) {
    case DCGM_ST_OK: return "Success";
    case DCGM_ST_BADPARAM: return "Bad parameter passed to function";
    case DCGM_ST_TIMEOUT: return "Timeout";
    case DCGM_ST_CONNECTION_NOT_VALID: return "Host engine connection invalid/disconnected";
    case DCGM_ST_DUPLICATE_KEY: return "Duplicate Key passed to function";
    case DCGM_ST_MODULE_NOT_LOADED: return "This request is serviced by a module of DCGM that is not currently loaded";
    case DCGM_ST_GPU_IS_LOST: return "GPU is lost";
    case DCGM_ST_IN_USE: return "The requested operation could not be completed because the affected resource is in use";
    case DCGM_ST_MAX_LIMIT: return "Max limit reached for the object";
    default: return "Some other error";
    }
}

PUBLIC dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t h, dcgm_field_entity_group_t g, dcgm_field_eid_t *e, int *n, unsigned int flags) {
    (void)flags;
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (failed_lists < conf.transient) { failed_lists++; return leave(DCGM_ST_GENERIC_ERROR); }
    if (!conf.transient) failed_lists = 0;
    *n = 0;
    if (g == DCGM_FE_GPU && !conf.detached)
        for (int i = 0; i < conf.gpus; i++) e[(*n)++] = i;
    return leave(DCGM_ST_OK);
}

// Instances of board 0 are numbered 16, 17 …, their compute instances 48, 49 …
PUBLIC dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t h, dcgmMigHierarchy_v2 *out) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    out->count = 0;
    for (int i = 0; i < conf.mig && !conf.detached; i++) {
        dcgmMigHierarchyInfo_v2 *gi = &out->entityList[out->count++], *ci = &out->entityList[out->count++];
        memset(gi, 0, sizeof *gi);
        gi->entity.entityGroupId = DCGM_FE_GPU_I, gi->entity.entityId = 16 + i;
        gi->parent.entityGroupId = DCGM_FE_GPU, gi->parent.entityId = 0;
        gi->info.nvmlInstanceId = 7 + i, gi->info.nvmlComputeInstanceId = -1, gi->info.nvmlProfileSlices = 1;
        *ci = *gi;
        ci->entity.entityGroupId = DCGM_FE_GPU_CI, ci->entity.entityId = 48 + i;
        ci->parent = gi->entity;
        ci->info.nvmlComputeInstanceId = 0;
    }
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmGetGpuStatus(dcgmHandle_t h, unsigned int gpu, DcgmEntityStatus_t *s) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    *s = conf.detached ? DcgmEntityStatusDetached : conf.lost >> gpu & 1 ? DcgmEntityStatusLost : DcgmEntityStatusOk;
    return leave(DCGM_ST_OK);
}

static int in(const unsigned short *list, int n, unsigned short id) {
    for (int i = 0; i < n; i++) if (list[i] == id) return 1;
    return 0;
}

static const unsigned short texts[] = {1, 50, 54, 57};
static const unsigned short doubles[] = {155, 157, 160, 161, 162, 163, 164, 254, 1611};
static const unsigned short ints[] = {52, 55, 100, 101, 102, 112, 1009, 1010, 1011, 1012, 1091, 1092};
static const unsigned short blobs[] = {75, 221};
#define HAS(list, id) in(list, sizeof list / sizeof *list, id)

static char type_of(unsigned short id) {
    if (HAS(texts, id)) return DCGM_FT_STRING;
    if (HAS(doubles, id) || (id >= 1001 && id <= 1008)) return DCGM_FT_DOUBLE;
    if (HAS(ints, id)) return DCGM_FT_INT64;
    if (HAS(blobs, id)) return DCGM_FT_BINARY;
    if (id >= 130 && id < 500) return DCGM_FT_INT64; // temperatures, utilization, memory and counters of errors
    return 0;
}

PUBLIC dcgm_field_meta_p DcgmFieldGetById(unsigned short id) { // answered by the library, not the host engine
    static dcgm_field_meta_t table[2000];
    if (id >= 2000) return NULL;
    table[id].fieldId = type_of(id) ? id : 0;
    table[id].fieldType = type_of(id);
    table[id].entityLevel = DCGM_FE_GPU;
    return &table[id];
}

PUBLIC dcgmReturn_t dcgmProfGetSupportedMetricGroups(dcgmHandle_t h, dcgmProfGetMetricGroups_t *out) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (!(conf.gpm >> out->gpuId & 1)) return leave(DCGM_ST_MODULE_NOT_LOADED);
    out->numMetricGroups = 1;
    out->metricGroups[0].numFieldIds = 0;
    for (unsigned short id = 1001; id <= 1012; id++) out->metricGroups[0].fieldIds[out->metricGroups[0].numFieldIds++] = id;
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmGroupCreate(dcgmHandle_t h, dcgmGroupType_t t, const char *name, dcgmGpuGrp_t *out) {
    (void)t, (void)name;
    dcgmReturn_t r = enter(h);
    if (r) return r;
    for (int i = BUILTIN; i < MAX_GROUPS - conf.taken; i++)
        if (!groups[i].used) {
            memset(&groups[i], 0, sizeof groups[i]);
            groups[i].used = 1, groups[i].connection = index_of(h);
            *out = i;
            return leave(DCGM_ST_OK);
        }
    return leave(DCGM_ST_MAX_LIMIT);
}

static unsigned board_of(dcgm_field_entity_group_t kind, dcgm_field_eid_t id) { return kind == DCGM_FE_GPU ? id : 0; }

PUBLIC dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t h, dcgmGpuGrp_t g, dcgm_field_entity_group_t kind, dcgm_field_eid_t id) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (g >= MAX_GROUPS || !groups[g].used || groups[g].n == 64) return leave(DCGM_ST_NOT_CONFIGURED);
    if (conf.lost >> board_of(kind, id) & 1) return leave(DCGM_ST_GPU_IS_LOST);
    for (int i = 0; i < groups[g].n; i++)
        if (groups[g].e[i].entityGroupId == kind && groups[g].e[i].entityId == id) return leave(DCGM_ST_BADPARAM);
    groups[g].e[groups[g].n].entityGroupId = kind;
    groups[g].e[groups[g].n++].entityId = id;
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t h, dcgmGpuGrp_t g) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (g >= MAX_GROUPS || !groups[g].used) return leave(DCGM_ST_NOT_CONFIGURED);
    groups[g].used = 0;
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t h, int n, const unsigned short *ids, const char *name, dcgmFieldGrp_t *out) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (n < 1 || n > 127 || !strcmp(name, conf.foreign)) return leave(n < 1 || n > 127 ? DCGM_ST_BADPARAM : DCGM_ST_DUPLICATE_KEY);
    for (int i = 0; i < n; i++)
        if (!type_of(ids[i]) || (conf.old && ids[i] >= 1084)) return leave(DCGM_ST_BADPARAM);
    int free_slot = -1;
    for (int i = MAX_GROUPS - 1; i >= BUILTIN; i--) {
        if (field_groups[i].used && !strcmp(field_groups[i].name, name)) return leave(DCGM_ST_DUPLICATE_KEY);
        if (!field_groups[i].used) free_slot = i;
    }
    if (free_slot < 0) return leave(DCGM_ST_MAX_LIMIT);
    fields_t *f = &field_groups[free_slot];
    memset(f, 0, sizeof *f);
    f->used = 1, f->connection = index_of(h), f->n = n;
    snprintf(f->name, sizeof f->name, "%s", name);
    memcpy(f->id, ids, n * sizeof *ids);
    *out = free_slot;
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t h, dcgmFieldGrp_t f) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (f >= MAX_GROUPS || !field_groups[f].used) return leave(DCGM_ST_NO_DATA);
    field_groups[f].used = 0;
    return leave(DCGM_ST_OK);
}

// MIG instances have their own values for few fields.
static int level_ok(dcgm_field_entity_group_t kind, unsigned short id) {
    if (kind == DCGM_FE_GPU) return 1;
    if (id == 54 || id == 250 || id == 252) return 1;
    if (id == 1005) return kind == DCGM_FE_GPU_I;
    return (id >= 1001 && id <= 1004) || (id >= 1006 && id <= 1008);
}

static int slot(dcgm_field_entity_group_t kind) { return kind == DCGM_FE_GPU ? 0 : kind == DCGM_FE_GPU_I ? 1 : 2; }

// field_of returns the samples of a field of an entity.
static field_t *field_of(dcgm_field_entity_group_t kind, dcgm_field_eid_t id, unsigned short field) {
    static unsigned char index[2000];
    static int n;
    if (!index[field]) {
        if (n + 1 >= MAX_FIELDS) abort();
        index[field] = (unsigned char)++n;
    }
    return &polled[slot(kind)][id & 63][index[field]];
}

// settle starts, changes or ends the sampling of a field according to its watchers.
static void settle(dcgm_field_entity_group_t kind, dcgm_field_eid_t id, unsigned short field) {
    field_t *p = field_of(kind, id, field);
    int64_t every = 0, now = now_us();
    double keep = 0;
    for (int i = 0; i < top; i++) {
        watcher_t *w = &watchers[i];
        if (!w->used || w->kind != kind || w->id != id || w->field != field) continue;
        if (!every || w->every < every) every = w->every;
        if (w->keep > keep) keep = w->keep;
    }
    if (every) p->keep = keep;
    if (every && conf.fastest && conf.fastest < every) every = conf.fastest;
    segment_t *last = p->n ? &p->s[p->n - 1] : NULL;
    int running = last && !last->end;
    if (running && last->every == every) return;
    if (running) last->end = now;
    if (!every) return;
    segment_t next = {now, 0, every, 1};
    int64_t sampled = 0; // when the field was read last
    for (int k = p->n - 1; k >= 0 && !sampled; k--)
        if (p->s[k].first <= p->s[k].end) sampled = p->s[k].first + (p->s[k].end - p->s[k].first) / p->s[k].every * p->s[k].every;
    if (sampled) {
        if ((running || kind != DCGM_FE_GPU) && sampled + every > now) next.first = sampled + every;
        next.blank = next.first - sampled > 2 * every;
    }
    if (p->n == MAX_SEGMENTS) memmove(p->s, p->s + 1, --p->n * sizeof *p->s);
    p->s[p->n++] = next;
}

PUBLIC dcgmReturn_t dcgmWatchFields(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmFieldGrp_t f, long long every, double keep, int samples) {
    (void)samples;
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (g >= MAX_GROUPS || !groups[g].used) return leave(DCGM_ST_NOT_CONFIGURED);
    if (f >= MAX_GROUPS || !field_groups[f].used) return leave(DCGM_ST_NO_DATA);
    for (int i = 0; i < groups[g].n; i++)
        for (int k = 0; k < field_groups[f].n; k++) {
            unsigned short id = field_groups[f].id[k];
            // A profiling field that the kind of entity does not have fails the watch too.
            if (id >= 1001 && id <= 1096 && !level_ok(groups[g].e[i].entityGroupId, id)) return leave(DCGM_ST_BADPARAM);
            if (id >= 1001 && id <= 1096 && conf.profbusy) return leave(DCGM_ST_IN_USE);
            // One incapable board fails the profiling fields of all boards, and the other fields of the watch.
            if (id >= 1001 && id <= 1096 && !(conf.gpm >> board_of(groups[g].e[i].entityGroupId, groups[g].e[i].entityId) & 1))
                return leave(DCGM_ST_MODULE_NOT_LOADED);
        }
    for (int i = 0; i < groups[g].n; i++)
        for (int k = 0; k < field_groups[f].n; k++) {
            watcher_t x = {1, index_of(h), groups[g].e[i].entityGroupId, groups[g].e[i].entityId, field_groups[f].id[k],
                           every < 1000 ? 1000 : every, keep < 1 ? 1 : keep};
            int at = -1;
            for (int w = top - 1; w >= 0; w--) {
                watcher_t *o = &watchers[w];
                if (!o->used) at = at < 0 || watchers[at].used == 0 ? w : at;
                else if (o->connection == x.connection && o->kind == x.kind && o->id == x.id && o->field == x.field) { at = w; break; }
            }
            if (at < 0 && top == MAX_WATCHES) return leave(DCGM_ST_MAX_LIMIT);
            watchers[at < 0 ? top++ : at] = x;
            settle(x.kind, x.id, x.field);
        }
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmFieldGrp_t f) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (g >= MAX_GROUPS || !groups[g].used) return leave(DCGM_ST_NOT_CONFIGURED);
    if (f >= MAX_GROUPS || !field_groups[f].used) return leave(DCGM_ST_NO_DATA);
    for (int i = 0; i < groups[g].n; i++)
        for (int k = 0; k < field_groups[f].n; k++)
            for (int w = 0; w < top; w++) {
                watcher_t *o = &watchers[w];
                if (field_groups[f].id[k] == DCGM_FI_DRIVER_VERSION) break;
                if (!o->used || o->connection != index_of(h) || o->kind != groups[g].e[i].entityGroupId ||
                    o->id != groups[g].e[i].entityId || o->field != field_groups[f].id[k]) continue;
                o->used = 0;
                settle(o->kind, o->id, o->field);
                break;
            }
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t h, int wait) {
    (void)wait;
    dcgmReturn_t r = enter(h);
    return r ? r : leave(DCGM_ST_OK);
}

static void blank(dcgmFieldValue_v1 *v, int why) {
    if (v->fieldType == DCGM_FT_INT64) v->value.i64 = DCGM_INT64_BLANK + why;
    else if (v->fieldType == DCGM_FT_DOUBLE) v->value.dbl = DCGM_FP64_BLANK + why;
    else if (v->fieldType == DCGM_FT_BINARY) memset(v->value.blob, 0, 16);
    else strcpy(v->value.str, why == 2 ? DCGM_STR_NOT_SUPPORTED : DCGM_STR_BLANK);
}

static void fill(dcgmFieldValue_v1 *v, dcgm_field_entity_group_t kind, dcgm_field_eid_t e, unsigned short id, int64_t t, int first) {
    v->version = dcgmFieldValue_version1;
    v->fieldId = id, v->fieldType = type_of(id), v->status = DCGM_ST_OK, v->ts = t;
    double s = t * 1e-6;
    int describing = id < 100 || id == 235 || id == 236; // 164 is read from the driver each time (DcgmCacheManager.cpp)
    if (conf.detached || ((conf.lost | conf.gsp) >> board_of(kind, e) & 1 && !describing)) { blank(v, 0); return; }
    if (id == 157 && in(conf.unsupported, conf.n_unsupported, id)) { v->value.dbl = 0; return; }
    int not_supported = in(conf.unsupported, conf.n_unsupported, id) || !level_ok(kind, id);
    int no_permission = in(conf.noperm, conf.n_noperm, id), paused = first || conf.blankprof >> board_of(kind, e) & 1;
    if (id >= 1001 && id <= 1096 && (not_supported || no_permission || paused)) { blank(v, 0); return; }
    if (not_supported) { blank(v, 2); return; }
    if (no_permission) { blank(v, 3); return; }
    if (in(conf.failing, conf.n_failing, id)) { blank(v, 0); return; }
    switch (id) {
    case 1: strcpy(v->value.str, "580.65.06"); break;
    case 50: strcpy(v->value.str, "NVIDIA H100 80GB HBM3"); break;
    case 54:
        if (kind == DCGM_FE_GPU && conf.nouuid >> e & 1) blank(v, 0);
        else if (kind == DCGM_FE_GPU) sprintf(v->value.str, "GPU-00000000-0000-0000-0000-%012x", e);
        else if (kind == DCGM_FE_GPU_CI) sprintf(v->value.str, "MIG-00000000-0000-0000-0000-%012x", conf.migat && t >= conf.migat ? e ^ 1 : e);
        else blank(v, 2);
        break;
    case 57: sprintf(v->value.str, "00000000:%02X:00.0", 0x10 + e); break;
    case 52: v->value.i64 = e; break;
    case 55: v->value.i64 = e + 1; break; // the driver's minor numbers can skip some
    case 75: { // the count, then the instances (MIG_ATTRIBUTES in DcgmCacheManager.cpp)
        dcgmDeviceMigAttributes_v1 *a = (dcgmDeviceMigAttributes_v1 *)v->value.blob;
        memset(a, 0, (conf.mig + 1) * sizeof *a);
        a[0].migDevicesCount = e ? 0 : conf.mig;
        for (int i = 0; i < (int)a[0].migDevicesCount; i++) {
            a[i + 1].migAttributesInfo.gpuInstanceId = 7 + i;
            a[i + 1].migAttributesInfo.multiprocessorCount = 16 + i;
        }
        break;
    }
    case 100: v->value.i64 = 1980; break;
    case 101: v->value.i64 = 2619; break;
    case 102: v->value.i64 = 1545; break;
    case 112: v->value.i64 = (t / 1000000) % 10 < 3 ? 0x5 : 0x1; break; // power cap in 3 of 10 seconds, idle always
    case 140: v->value.i64 = 62 + e; break;
    case 150: v->value.i64 = 45 + e; break;
    case 155: v->value.dbl = conf.scale ? conf.scale : 300; break;
    case 156: v->value.i64 = (int64_t)(310000 * ((conf.refresh ? t / conf.refresh * conf.refresh * 1e-6 : s) - 1.7e9)); break;
    case 157: v->value.dbl = conf.scale ? conf.scale : 310 + e; break;
    case 164: v->value.dbl = 700; break;
    case 203: v->value.i64 = 97; break;
    case 235: v->value.i64 = 5; break;
    case 236: v->value.i64 = 16; break;
    case 250: v->value.i64 = kind == DCGM_FE_GPU ? 81559 : 9984; break;
    case 252: v->value.i64 = kind == DCGM_FE_GPU ? 40000 : 1000; break;
    case 253: v->value.i64 = 551; break;
    case 310: v->value.i64 = (t / 60000000) % 1000; break; // increases by one each minute
    case 1009: v->value.i64 = 1000000000; break;
    case 1010: v->value.i64 = 2000000000; break;
    case 1011: v->value.i64 = 3000000000LL; break;
    case 1091: v->value.i64 = (int64_t)(1e9 * (s - 1.7e9)); break;
    case 1092: v->value.i64 = (int64_t)(2e9 * (s - 1.7e9)); break;
    case 1611: v->value.dbl = 310 * (s - 1.7e9); break;
    default:
        if (v->fieldType == DCGM_FT_DOUBLE) v->value.dbl = kind == DCGM_FE_GPU ? 0.5 : 0.25;
        else v->value.i64 = 0;
    }
}

// entry_t is a field of an entity that is read.
typedef struct { dcgm_field_entity_group_t kind; dcgm_field_eid_t id; unsigned short field; field_t *p; } entry_t;

static entry_t entry(dcgmGpuGrp_t g, dcgmFieldGrp_t f, int i, int k) {
    dcgmGroupEntityPair_t *e = &groups[g].e[i];
    unsigned short field = field_groups[f].id[k];
    return (entry_t){e->entityGroupId, e->entityId, field, field_of(e->entityGroupId, e->entityId, field)};
}


// BURST is how many times the engine repeats a reading of a lost board, BURST_STEP the us between two of them.
enum { BURST = 10, BURST_STEP = 65 };

static int burst_of(entry_t *w, segment_t *s) { return conf.lost >> board_of(w->kind, w->id) & 1 && !s->end ? BURST : 1; }

// lag_of returns how long before the end of a reading a field is read, in us.
static int64_t lag_of(unsigned short id) {
    static const unsigned short together[] = {156, 310, 311, 391, 392, 393, 394, 395, 396, 409, 429, 439};
    return HAS(together, id) ? 0 : 20 * (1 + id % 40);
}

// read_until returns up to when readings of a segment have read a field.
static int64_t read_until(unsigned short id, segment_t *s, int64_t now) {
    if (s->end && s->end < now) now = s->end;
    else now += lag_of(id);
    return conf.frozen && conf.frozen < now ? conf.frozen : now;
}

// stamp_of returns the time under which the engine stores the value of a reading at time t.
static int64_t stamp_of(unsigned short id, segment_t *s, int64_t t) {
    if (id != 156 || !conf.stamped || !conf.refresh) return t == s->first ? t : t - lag_of(id); // none is before the watch
    int64_t changed = t / conf.refresh * conf.refresh;
    int64_t before = changed > s->first ? (changed - s->first + s->every - 1) / s->every : 0; // readings before the change
    return changed + (t - s->first) / s->every - before;
}

// last_of returns the time of the newest reading up to a time, or 0 without one.
static int64_t last_of(entry_t *w, int64_t now, int *blank_sample, segment_t **in) {
    for (int k = w->p->n - 1; k >= 0; k--) {
        segment_t *s = &w->p->s[k];
        int64_t to = read_until(w->field, s, now);
        if (to < s->first) continue;
        to = s->first + (to - s->first) / s->every * s->every;
        *blank_sample = to == s->first && s->blank, *in = s;
        return to;
    }
    return 0;
}

// process_at appends the processes of the reading at time t, each 1 us after the one before.
static int process_at(entry_t *w, dcgmFieldValue_v1 *values, int n, int64_t t, int64_t stamp) {
    int first = n;
    for (int k = 0; k < conf.n_processes; k++) {
        if (conf.processes[k].gpu != w->id || conf.processes[k].ts > t) continue;
        dcgmRunningProcess_v1 p = {dcgmRunningProcess_version1, conf.processes[k].pid, conf.processes[k].bytes};
        memset(&values[n], 0, 32);
        values[n].fieldId = 221, values[n].fieldType = DCGM_FT_BINARY, values[n].ts = stamp + n - first;
        memcpy(values[n++].value.blob, &p, sizeof p);
    }
    return n;
}

static int xids_of(entry_t *w, dcgmFieldValue_v1 *values, int64_t since, int64_t now) {
    int n = 0;
    for (int k = 0; k < conf.n_xids; k++) {
        xid_t *x = &conf.xids[k];
        if (x->gpu != w->id || x->ts < since || x->ts > now || (conf.epoch == 1 && x->ts < now - w->p->keep * 1e6)) continue;
        memset(&values[n], 0, 32);
        values[n].fieldId = 230, values[n].fieldType = DCGM_FT_INT64, values[n].ts = x->ts, values[n].value.i64 = x->code;
        n++;
    }
    return n;
}

PUBLIC dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmFieldGrp_t f, long long since, long long *next,
                                          dcgmFieldValueEntityEnumeration_f cb, void *data) {
    enum { CHUNK = 64 };
    static dcgmFieldValue_v1 values[CHUNK + MAX_PROCESSES];
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (failed_histories < conf.late + conf.broken) {
        failed_histories++;
        return leave(conf.late ? DCGM_ST_TIMEOUT : DCGM_ST_GENERIC_ERROR);
    }
    if (!conf.late && !conf.broken) failed_histories = 0;
    *next = since;
    if (g >= MAX_GROUPS || !groups[g].used || f >= MAX_GROUPS || !field_groups[f].used) return leave(DCGM_ST_NO_DATA);
    trips++; // for the lists of the field group and of the group
    int64_t now = now_us();
    int64_t given = 0;
    for (int i = 0; i < groups[g].n * field_groups[f].n; i++) {
        entry_t x = entry(g, f, i / field_groups[f].n, i % field_groups[f].n), *w = &x;
        round_trip();
        int n = 0, any = 0, of_field = 0;
        if (w->field == 230) n = xids_of(w, values, since, now), any = n > 0;
        for (int k = 0; k < w->p->n && w->field != 230; k++) {
            segment_t *s = &w->p->s[k];
            int64_t oldest = now - (int64_t)(w->p->keep * 1e6), to = read_until(w->field, s, now);
            if (oldest < since) oldest = since;
            // Readings whose values can be as new as this.
            int64_t skip = oldest - BURST * BURST_STEP - s->every - s->first;
            for (int64_t t = s->first + (skip > 0 ? skip / s->every * s->every : 0); t <= to && of_field < PER_FIELD; t += s->every) {
                int64_t stamp = stamp_of(w->field, s, t);
                if (w->field == 221 && stamp >= oldest) n = process_at(w, values, n, t, stamp), given++, of_field++;
                for (int b = 0; b < burst_of(w, s) && w->field != 221; b++) {
                    int64_t at = stamp + b * BURST_STEP;
                    if (at < oldest || at > now) continue;
                    fill(&values[n++], w->kind, w->id, w->field, at, t == s->first && s->blank);
                    given++, of_field++;
                }
                any |= n > 0;
                if (n >= CHUNK - 16 && cb(w->kind, w->id, values, n, data)) { *next = since; return leave(DCGM_ST_OK); }
                if (n >= CHUNK - 16) n = 0;
            }
        }
        if (conf.limit && given > conf.limit) return leave(DCGM_ST_INSUFFICIENT_SIZE);
        if (!any) {
            memset(&values[0], 0, 32);
            values[0].fieldId = w->field, values[0].fieldType = type_of(w->field);
            values[0].status = w->p->n ? DCGM_ST_NO_DATA : DCGM_ST_NOT_WATCHED;
            blank(&values[0], 0);
            n = 1;
        }
        if (n && cb(w->kind, w->id, values, n, data)) return leave(DCGM_ST_OK);
    }
    *next = now + 1;
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmGetLatestValues_v2(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmFieldGrp_t f, dcgmFieldValueEntityEnumeration_f cb,
                                           void *data) {
    static dcgmFieldValue_v1 values[MAX_PROCESSES];
    dcgmReturn_t r = enter(h);
    if (r) return r;
    if (g >= MAX_GROUPS || !groups[g].used || f >= MAX_GROUPS || !field_groups[f].used) return leave(DCGM_ST_NO_DATA);
    trips--;
    round_trip();
    int64_t now = now_us();
    for (int i = 0; i < groups[g].n * field_groups[f].n; i++) {
        entry_t x = entry(g, f, i / field_groups[f].n, i % field_groups[f].n), *w = &x;
        int n = 0, first = 0;
        segment_t *s = NULL;
        int64_t t = last_of(w, now, &first, &s);
        if (w->field == 230) {
            n = xids_of(w, values, 0, now);
            for (int k = 1; k < n; k++) if (values[k].ts > values[0].ts) values[0] = values[k];
        } else if (t && w->field == 221) {
            n = process_at(w, values, 0, t, stamp_of(221, s, t));
            if (n) values[0] = values[n - 1];
        } else if (t) {
            fill(&values[n++], w->kind, w->id, w->field, stamp_of(w->field, s, t), first);
        }
        if (!n) {
            memset(&values[0], 0, 32);
            values[0].fieldId = w->field, values[0].fieldType = type_of(w->field);
            values[0].status = w->p->n ? DCGM_ST_NO_DATA : DCGM_ST_NOT_WATCHED;
            blank(&values[0], 0);
        }
        cb(w->kind, w->id, values, 1, data);
    }
    return leave(DCGM_ST_OK);
}

// Functions that only dcgm-exporter calls.

PUBLIC int DcgmFieldsInit(void) { return 0; }
PUBLIC int DcgmFieldsTerm(void) { return 0; }

PUBLIC dcgmReturn_t dcgmGetAllDevices(dcgmHandle_t h, unsigned int ids[DCGM_MAX_NUM_DEVICES], int *n) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    for (*n = 0; *n < conf.gpus; ++*n) ids[*n] = *n;
    return leave(DCGM_ST_OK);
}

// None is supported, so that no client requests a board's topology.
PUBLIC dcgmReturn_t dcgmGetAllSupportedDevices(dcgmHandle_t h, unsigned int ids[DCGM_MAX_NUM_DEVICES], int *n) {
    (void)ids;
    dcgmReturn_t r = enter(h);
    if (r) return r;
    *n = 0;
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmGetDeviceAttributes(dcgmHandle_t h, unsigned int gpu, dcgmDeviceAttributes_t *a) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    memset(&a->identifiers, 0, sizeof a->identifiers);
    sprintf(a->identifiers.uuid, "GPU-00000000-0000-0000-0000-%012x", gpu);
    strcpy(a->identifiers.deviceName, "NVIDIA H100 80GB HBM3");
    sprintf(a->identifiers.pciBusId, "00000000:%02X:00.0", 0x10 + gpu);
    return leave(DCGM_ST_OK);
}

PUBLIC dcgmReturn_t dcgmGetNvLinkLinkStatus(dcgmHandle_t h, dcgmNvLinkStatus_v5 *s) { (void)h, (void)s; return DCGM_ST_NOT_SUPPORTED; }
PUBLIC dcgmReturn_t dcgmGetCpuHierarchy(dcgmHandle_t h, dcgmCpuHierarchy_v1 *s) { (void)h, (void)s; return DCGM_ST_NOT_SUPPORTED; }

PUBLIC dcgmReturn_t dcgmEntityGetLatestValues(dcgmHandle_t h, dcgm_field_entity_group_t kind, int id, unsigned short ids[],
                                              unsigned int n, dcgmFieldValue_v1 values[]) {
    dcgmReturn_t r = enter(h);
    if (r) return r;
    trips--;
    round_trip();
    int64_t now = now_us();
    for (unsigned k = 0; k < n; k++) {
        memset(&values[k], 0, 64);
        values[k].fieldId = ids[k], values[k].fieldType = type_of(ids[k]), values[k].status = DCGM_ST_NO_DATA;
        blank(&values[k], 0);
        entry_t w = {kind, (unsigned)id, ids[k], field_of(kind, id, ids[k])};
        int first = 0;
        segment_t *s = NULL;
        int64_t t = ids[k] == 230 || ids[k] == 221 ? 0 : last_of(&w, now, &first, &s);
        if (t) fill(&values[k], kind, id, ids[k], stamp_of(ids[k], s, t), first);
    }
    return leave(DCGM_ST_OK);
}
