// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"encoding/base64"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
	"github.com/otelgpu/otelgpu/semconv"
)

const (
	kernelName    = string(semconv.GPUKernelNameKey)
	deviceOrdinal = string(semconv.GPUDeviceOrdinalKey)
)

// note is the argument "otel" of an event.
type note struct {
	name             string
	renamed          bool
	start, end       int64 // unix ns
	hasStart, hasEnd bool
	absent           bool
	origin           int64
	attributes       []byte
}

func readNote(v []byte) (n note) {
	chromejson.Fields(v, func(k, v []byte) bool {
		switch string(k) {
		case "name":
			n.name, n.renamed = text(v), true
		case "start":
			n.hasStart = setInt(&n.start, v)
		case "end":
			n.hasEnd = setInt(&n.end, v)
		case "absent":
			n.absent = string(v) == "true"
		case "origin":
			setInt(&n.origin, v)
		case "attributes":
			n.attributes = v
		}
		return true
	})
	return n
}

// values reads attributes.
type values struct {
	beyond int64 // attributes that were omitted
}

// exactAttributes reads attributes whose types are stated.
func (r *values) exactAttributes(to pcommon.Map, object []byte) {
	chromejson.Fields(object, func(k, v []byte) bool {
		r.setExact(r.put(to, string(chromejson.Text(k))), v, 0)
		return true
	})
}

// maxAttributes of a map, which is searched for each: further ones are dropped and counted.
const maxAttributes = 1 << 12

// put returns the value of a key, new or not.
func (r *values) put(m pcommon.Map, key string) pcommon.Value {
	v, ok := m.Get(key)
	switch {
	case ok:
		return v
	case m.Len() >= maxAttributes:
		r.beyond++
		return pcommon.NewValueEmpty()
	}
	return m.PutEmpty(key)
}

// maxDepth of nested values; deeper ones stay JSON text.
const maxDepth = 64

// setValue reads an attribute as gpuspan/chrometrace writes it for viewers: a number with a point or an exponent is a
// double.
func (r *values) setValue(to pcommon.Value, v []byte, depth int) {
	switch {
	case len(v) == 0 || depth > maxDepth:
		to.SetStr(string(v))
	case v[0] == '"':
		to.SetStr(string(unescape(v[1:len(v)-1], bytes.IndexByte(v, '\\') >= 0)))
	case v[0] == '[':
		r.setList(to, v, depth, (*values).setValue)
	case v[0] == '{':
		r.setMap(to, v, depth, (*values).setValue)
	case v[0] == 't':
		to.SetBool(true)
	case v[0] == 'f':
		to.SetBool(false)
	case v[0] != 'n':
		setNumber(to, v)
	case to.Type() != pcommon.ValueTypeEmpty:
		pcommon.NewValueEmpty().CopyTo(to)
	}
}

// setExact reads an attribute that gpuspan/chrometrace writes with its type because JSON lacks the type.
func (r *values) setExact(to pcommon.Value, v []byte, depth int) {
	if len(v) > 0 && depth <= maxDepth {
		switch v[0] {
		case '[':
			r.setList(to, v, depth, (*values).setExact)
			return
		case '{':
			chromejson.Fields(v, func(k, v []byte) bool {
				switch string(k) {
				case "double":
					f, _ := strconv.ParseFloat(text(v), 64)
					to.SetDouble(f)
				case "bytes":
					b, _ := base64.StdEncoding.DecodeString(text(v))
					to.SetEmptyBytes().FromRaw(b)
				case "map":
					r.setMap(to, v, depth, (*values).setExact)
				}
				return false
			})
			return
		}
	}
	r.setValue(to, v, depth)
}

type setter func(r *values, to pcommon.Value, v []byte, depth int)

func (r *values) setList(to pcommon.Value, v []byte, depth int, set setter) {
	list := to.SetEmptySlice()
	chromejson.Elements(v, func(v []byte) bool {
		if len(v) > 0 {
			set(r, list.AppendEmpty(), v, depth+1)
		}
		return true
	})
}

func (r *values) setMap(to pcommon.Value, v []byte, depth int, set setter) {
	m := to.SetEmptyMap()
	chromejson.Fields(v, func(k, v []byte) bool {
		set(r, r.put(m, string(chromejson.Text(k))), v, depth+1)
		return true
	})
}

func setNumber(to pcommon.Value, v []byte) {
	if !bytes.ContainsAny(v, ".eE") {
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			to.SetInt(n)
			return
		}
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		to.SetStr(string(v))
		return
	}
	to.SetDouble(f)
}
