// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import (
	"cmp"
	"encoding/json"
	"strconv"
)

// DeviceName returns the name of a device by its ordinal.
func DeviceName(ordinal int64) string { return "GPU " + strconv.FormatInt(ordinal, 10) }

var shortTypes = map[string]string{
	"float": "f32", "double": "f64", "c10::Half": "f16", "c10::BFloat16": "bf16", "int": "i32", "long int": "i64",
	"long": "i64", "unsigned char": "u8", "signed char": "i8", "bool": "bool", "short": "i16",
	"c10::Float8_e4m3fn": "f8e4m3", "c10::Float8_e5m2": "f8e5m2",
}

// AppendShape appends one tensor in that form: its type and, in JSON, its dimensions from the file.
func AppendShape(b []byte, kind string, dims []byte) []byte {
	b = append(b, cmp.Or(shortTypes[kind], kind, "?")...)
	for _, c := range dims {
		if c > ' ' {
			b = append(b, c)
		}
	}
	return b
}

// Shapes converts the types and dimensions of an operator's inputs, as PyTorch writes them in JSON,
// to the form "f32[1000,1000,3]". Scalars and lists of tensors are omitted; unknown forms give
// nothing.
func Shapes(types, dims string) []string {
	if dims == "" {
		return nil
	}
	var d []json.RawMessage
	if json.Unmarshal([]byte(dims), &d) != nil {
		return nil
	}
	var t []string
	_ = json.Unmarshal([]byte(types), &t)
	var out []string
	for i, raw := range d {
		var shape []int64
		if json.Unmarshal(raw, &shape) != nil || len(shape) == 0 {
			continue
		}
		kind := ""
		if i < len(t) {
			kind = t[i]
		}
		out = append(out, string(AppendShape(nil, kind, raw)))
	}
	return out
}
