// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Text returns a raw JSON string without its quotes, with escapes resolved. Invalid JSON strings
// are returned unchanged.
func Text(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return raw
	}
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return raw
	}
	return []byte(s)
}

// Fields calls f for every field of the raw JSON object: key without quotes, raw value. It stops at
// the first invalid JSON and at the first false.
func Fields(object []byte, f func(key, value []byte) bool) {
	i := space(object, 0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	for first := true; ; first = false {
		var name []byte
		id, at, err := member(object, i, first, func(key []byte) int { name = key; return 0 })
		if err != nil || id == last {
			return
		}
		if i, err = skip(object, at); err != nil || !f(name, object[at:i]) {
			return
		}
	}
}

// Elements calls f for every raw element of the JSON array. It stops at the first invalid JSON and
// at the first false.
func Elements(array []byte, f func(value []byte) bool) {
	i := space(array, 0)
	if i >= len(array) || array[i] != '[' {
		return
	}
	for i++; ; i++ {
		i = space(array, i)
		start := i
		next, err := skip(array, i)
		if err != nil || !f(array[start:next]) {
			return
		}
		if i = space(array, next); i >= len(array) || array[i] != ',' {
			return
		}
	}
}
