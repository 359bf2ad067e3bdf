// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package dcgmsource

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// dcgm_value is dcgmFieldValue_v1 of dcgm_structs.h, which go-dcgm keeps to itself.
typedef struct {
	unsigned int version;
	unsigned short field, type;
	int status;
	int64_t ts;
	union { int64_t i; double d; char text[256]; char blob[4096]; } value;
} dcgm_value;

// scalar is what is kept of one: 48 bytes in place of 4,120.
typedef struct {
	int64_t ts, i;     // i: the number; of a text its place in the texts, of a process its number
	double d;
	int64_t more;      // of a text its length, of a process its memory
	uint32_t entity;
	int32_t status;
	uint16_t field;
	uint8_t kind, type;
} scalar;

typedef struct {
	scalar *list;
	char *texts;
	size_t n, capacity, text_n, text_capacity, limit;
	int full, memory; // more than limit values; no memory
} scalars;

static void *grow(void *p, size_t *capacity, size_t size, size_t wanted) {
	if (wanted <= *capacity) return p;
	size_t next = *capacity ? 2 * *capacity : 1024;
	while (next < wanted) next *= 2;
	void *q = realloc(p, next * size);
	if (q) *capacity = next;
	return q;
}

// keep is the callback: it copies what counts and calls nothing of Go.
static int keep(int kind, uint32_t entity, dcgm_value *values, int n, void *into) {
	scalars *s = into;
	for (int k = 0; k < n; k++) {
		dcgm_value *v = &values[k];
		if (s->n >= s->limit) { s->full = 1; return 1; }
		void *p = grow(s->list, &s->capacity, sizeof(scalar), s->n + 1);
		if (!p) { s->memory = 1; return 1; }
		s->list = p;
		scalar *x = &s->list[s->n++];
		memset(x, 0, sizeof *x);
		x->ts = v->ts, x->entity = entity, x->status = v->status;
		x->field = v->field, x->kind = (uint8_t)kind, x->type = (uint8_t)v->type;
		if (v->type == 'i') x->i = v->value.i;
		else if (v->type == 'd') x->d = v->value.d;
		else if (v->type == 's') {
			size_t length = strnlen(v->value.text, sizeof v->value.text);
			p = grow(s->texts, &s->text_capacity, 1, s->text_n + length + 1);
			if (!p) { s->memory = 1; return 1; }
			s->texts = p;
			memcpy(s->texts + s->text_n, v->value.text, length);
			x->i = (int64_t)s->text_n, x->more = (int64_t)length;
			s->text_n += length;
		} else if (v->type == 'b') { // dcgmRunningProcess_v1: version, pid, memory
			uint32_t pid;
			memcpy(&pid, v->value.blob + 4, sizeof pid);
			memcpy(&x->more, v->value.blob + 8, sizeof x->more);
			x->i = pid;
		}
	}
	return 0;
}

typedef int (*callback)(int, uint32_t, dcgm_value *, int, void *);

static int (*values_since)(uintptr_t, uintptr_t, uintptr_t, long long, long long *, callback, void *);
static int (*latest_values)(uintptr_t, uintptr_t, uintptr_t, callback, void *);
static const char *(*error_text)(int);

// bind finds the functions in the library that go-dcgm has loaded for all to see; 0 when one is missing.
static int bind(void) {
	*(void **)&values_since = dlsym(RTLD_DEFAULT, "dcgmGetValuesSince_v2");
	*(void **)&latest_values = dlsym(RTLD_DEFAULT, "dcgmGetLatestValues_v2");
	*(void **)&error_text = dlsym(RTLD_DEFAULT, "errorString");
	return values_since && latest_values && error_text;
}

static int read_since(uintptr_t handle, uintptr_t group, uintptr_t fields, int64_t mark, int64_t *next, scalars *s) {
	long long n = mark;
	int r = values_since(handle, group, fields, mark, &n, keep, s);
	*next = n;
	return r;
}

static int read_latest(uintptr_t handle, uintptr_t group, uintptr_t fields, scalars *s) {
	return latest_values(handle, group, fields, keep, s);
}

static const char *text_of(int code) { return error_text(code); }

static const char *text_at(const scalars *s, int64_t place) { return s->texts + place; }

static void release(scalars *s) { free(s->list); free(s->texts); }
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// clientHandle is go-dcgm's connection. go-dcgm reads values as whole structures of 4 KiB each, which makes a backlog
// of two minutes a gigabyte; so values are read beside it, over its connection, and go-dcgm does not hand that out.
//
//go:linkname clientHandle github.com/NVIDIA/go-dcgm/pkg/dcgm.handle
var clientHandle struct{ handle uintptr }

// readLimit is the number of values that one read may bring: 48 MiB.
const readLimit = 1 << 20

func bindValues() error {
	if C.bind() == 0 {
		return errors.New("DCGM's client library lacks dcgmGetValuesSince_v2 or dcgmGetLatestValues_v2 (DCGM 4 is needed)")
	}
	return nil
}

func (library) valuesSince(group, fieldGroup uintptr, mark int64, fn func(*rawValue)) (int64, error) {
	s := C.scalars{limit: readLimit}
	defer C.release(&s)
	var next C.int64_t
	code := C.read_since(C.uintptr_t(clientHandle.handle), C.uintptr_t(group), C.uintptr_t(fieldGroup), C.int64_t(mark),
		&next, &s)
	if err := readError(&s, "dcgmGetValuesSince_v2", code); err != nil {
		return mark, err
	}
	pass(&s, fn)
	return int64(next), nil
}

func (library) latest(group, fieldGroup uintptr, fn func(*rawValue)) error {
	s := C.scalars{limit: readLimit}
	defer C.release(&s)
	code := C.read_latest(C.uintptr_t(clientHandle.handle), C.uintptr_t(group), C.uintptr_t(fieldGroup), &s)
	if err := readError(&s, "dcgmGetLatestValues_v2", code); err != nil {
		return err
	}
	pass(&s, fn)
	return nil
}

func readError(s *C.scalars, call string, code C.int) error {
	switch {
	case code != 0:
		return &callError{call: call, code: int(code), text: C.GoString(C.text_of(code))}
	case s.full != 0:
		return fmt.Errorf("%s: %w", call, errTooMany)
	case s.memory != 0:
		return fmt.Errorf("%s: no memory for %d values", call, int(s.n)+1)
	}
	return nil
}

// pass calls fn for each value.
func pass(s *C.scalars, fn func(*rawValue)) {
	if s.n == 0 {
		return
	}
	var raw rawValue
	list := unsafe.Slice(s.list, s.n)
	for i := range list {
		x := &list[i]
		raw = rawValue{
			entity: entity{entityKind(x.kind), uint(x.entity)}, field: uint16(x.field), typ: byte(x._type),
			status: int(x.status), ts: int64(x.ts), i: int64(x.i), f: float64(x.d), more: int64(x.more),
		}
		if raw.typ == typeString {
			raw.i = 0
			raw.s = C.GoStringN(C.text_at(s, x.i), C.int(x.more))
		}
		fn(&raw)
	}
}
