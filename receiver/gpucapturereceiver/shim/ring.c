// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// The ring's writer.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum {
	RECORDS = 1 << 17,  // 12 MiB: 26 ms at 5 million records a second, in which the Collector reads at least twice
	CONTEXTS = 1 << 13,
	NAMES = 1 << 20,
	INTERNED = 1 << 13, // slots of the name table
	PROBES = 16,        // slots that are probed for one name
};

uint64_t clock_ns(int clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t records_wanted(void) {
	const char *text = getenv("OTELGPU_CAPTURE_RECORDS");
	uint64_t want = text ? strtoull(text, NULL, 10) : RECORDS, n = 1 << 8;
	while (n < want && n < 1 << 24) n <<= 1;
	return n;
}

// process_start returns the process's start in ticks: field 22 of /proc/self/stat, counted after the command, which may
// contain spaces.
static uint64_t process_start(void) {
	char text[1024];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	if (fd < 0) return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0) return 0;
	text[n] = 0;
	char *at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

static void copy_text(char *to, size_t size, const char *from) {
	if (from) snprintf(to, size, "%s", from);
}

static void describe(struct header *h) {
	memcpy(h->magic, RING_MAGIC, sizeof h->magic);
	h->version = RING_VERSION;
	h->pid = (uint32_t)getpid();
	h->uid = (uint32_t)getuid();
	struct stat ns;
	if (stat("/proc/self/ns/pid", &ns) == 0) h->pid_namespace = ns.st_ino;
	h->started = process_start();
	h->created = clock_ns(CLOCK_REALTIME);
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t n = read(fd, h->command, sizeof h->command - 1);
		close(fd);
		if (n > 0 && h->command[n - 1] == '\n') h->command[n - 1] = 0;
	}
	memcpy(h->shim, SHIM_VERSION, sizeof SHIM_VERSION);
	copy_text(h->service, sizeof h->service, getenv("OTEL_SERVICE_NAME"));
	copy_text(h->resource, sizeof h->resource, getenv("OTEL_RESOURCE_ATTRIBUTES"));
}

// sweep removes files of this user's processes that ended while no Collector ran. A ring with unread records is kept
// for an hour, as is an empty file, whose process may be about to take its lock.
static void sweep(const char *folder) {
	DIR *dir = opendir(folder);
	if (!dir) return;
	struct dirent *entry;
	while ((entry = readdir(dir))) {
		size_t length = strlen(entry->d_name);
		if (length > 4 && strcmp(entry->d_name + length - 4, ".new") == 0) length -= 4;
		if (length < 5 || strncmp(entry->d_name + length - 5, ".ring", 5) != 0) continue;
		int fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0) continue;
		struct stat s;
		struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
		uint64_t head = 0, tail = 0;
		bool mine = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid();
		bool ended = mine && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
		bool read = ended && pread(fd, &head, 8, offsetof(struct header, head)) == 8 &&
			pread(fd, &tail, 8, offsetof(struct header, tail)) == 8 && head == tail;
		if (ended && (read || time(NULL) - s.st_mtime > 3600))
			unlinkat(dirfd(dir), entry->d_name, 0);
		close(fd);
	}
	closedir(dir);
}

static int ring_fd = -1;

bool ring_fill(struct header *h) {
	static bool filled;
	if (!filled) filled = posix_fallocate(ring_fd, 0, (off_t)(h->records_offset + h->records_capacity * h->record_size)) == 0;
	return filled;
}

struct header *ring_create(const char *folder, char *message, size_t size) {
	struct stat dir;
	if (stat(folder, &dir) != 0 || !S_ISDIR(dir.st_mode)) {
		snprintf(message, size, "the folder %.200s is not there", folder);
		return NULL;
	}
	sweep(folder);
	// Readers open names that end in .ring, so the file gets that name once it is complete.
	char final[512], path[sizeof final + 4];
	int n = snprintf(final, sizeof final, "%s/%d-%llu.ring", folder, (int)getpid(),
		(unsigned long long)clock_ns(CLOCK_REALTIME));
	snprintf(path, sizeof path, "%s.new", final);
	if (n < 0 || (size_t)n >= sizeof final) {
		snprintf(message, size, "the folder's name is too long");
		return NULL;
	}
	// In a folder with the setgid bit, the Collector reads with group permissions, elsewhere as the same user or root.
	mode_t mode = dir.st_mode & S_ISGID ? 0660 : 0600;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0) {
		snprintf(message, size, "cannot make %.200s: %s", final, strerror(errno));
		return NULL;
	}
	fchmod(fd, mode); // regardless of the umask
	uint64_t records = records_wanted();
	struct header layout = {
		.header_size = sizeof(struct header), .record_size = sizeof(struct record), .context_size = sizeof(struct context),
		.records_capacity = records, .contexts_capacity = CONTEXTS, .names_capacity = NAMES,
	};
	layout.contexts_offset = layout.header_size;
	layout.names_offset = layout.contexts_offset + CONTEXTS * sizeof(struct context);
	layout.records_offset = layout.names_offset + NAMES;
	uint64_t total = layout.records_offset + records * sizeof(struct record);
	// Lock first: an empty file without a lock may be new, but one with a header and no lock belongs to a dead process.
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	int failed = fcntl(fd, F_SETLK, &lock) != 0 || ftruncate(fd, (off_t)total) != 0 ? errno : 0;
	if (!failed) failed = posix_fallocate(fd, 0, layout.header_size);
	void *at = MAP_FAILED;
	if (!failed) {
		at = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (at == MAP_FAILED) failed = errno;
	}
	struct header *h = at;
	if (!failed) {
		memcpy(h, &layout, 72); // the fields before pid, none of which is atomic
		describe(h);
		atomic_store_explicit(&h->ready, 1, memory_order_release);
		if (rename(path, final) != 0) failed = errno;
	}
	if (failed) {
		snprintf(message, size, "cannot take %llu bytes for %.160s: %s", (unsigned long long)total, final, strerror(failed));
		if (at != MAP_FAILED) munmap(at, total);
		unlink(path);
		close(fd);
		return NULL;
	}
	ring_fd = fd;
	return h;
}

void ring_put(struct header *h, const struct record *r) {
	uint64_t head = atomic_load_explicit(&h->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&h->tail, memory_order_acquire);
	// A tail beyond the head is the fault of a reader; such a ring counts as empty.
	if (tail <= head && head - tail >= h->records_capacity) {
		atomic_fetch_add_explicit(&h->dropped_full, 1, memory_order_relaxed);
		return;
	}
	struct record *slots = (struct record *)((char *)h + h->records_offset);
	slots[head & (h->records_capacity - 1)] = *r;
	atomic_store_explicit(&h->head, head + 1, memory_order_release);
}

// Names in the ring, by the pointer from CUPTI, which stays the same for a kernel while its module is loaded. The text
// is compared, because another module may reuse the address. The same text at another pointer is written again; the
// reader deduplicates.
static struct interned { const char *pointer; uint32_t number, length; } table[INTERNED];

static uint32_t add_name(struct header *h, const char *name, uint32_t length) {
	uint64_t used = atomic_load_explicit(&h->names_used, memory_order_relaxed);
	uint64_t need = (sizeof length + length + 7) / 8 * 8;
	if (used + need > NAMES) return NAME_UNKNOWN;
	char *to = (char *)h + h->names_offset + used;
	memcpy(to, &length, sizeof length);
	memcpy(to + sizeof length, name, length);
	atomic_store_explicit(&h->names_used, used + need, memory_order_release);
	return (uint32_t)(used / 8);
}

uint32_t ring_name(struct header *h, const char *name) {
	if (!name) return NAME_UNKNOWN;
	uint32_t length = (uint32_t)strnlen(name, NAME_LIMIT);
	uint32_t first = (uint32_t)(((uint64_t)(uintptr_t)name >> 3) * 0x9e3779b97f4a7c15u >> 51);
	uint32_t number = NAME_UNKNOWN;
	for (uint32_t i = 0; i < PROBES; i++) {
		struct interned *e = &table[(first + i) % INTERNED];
		if (e->pointer == name && e->length == length &&
			memcmp((char *)h + h->names_offset + (uint64_t)e->number * 8 + sizeof length, name, length) == 0)
			return e->number;
		if (e->pointer && e->pointer != name) continue;
		number = add_name(h, name, length);
		if (number != NAME_UNKNOWN) *e = (struct interned){name, number, length};
		break;
	}
	if (number == NAME_UNKNOWN) atomic_fetch_add_explicit(&h->names_dropped, 1, memory_order_relaxed);
	return number;
}
