// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if !plain[s[i]] {
			to := bytes.NewBuffer(b)
			e := json.NewEncoder(to)
			e.SetEscapeHTML(false) // names of kernels are full of < and >
			_ = e.Encode(s)        // a string always can be
			return to.Bytes()[:to.Len()-1]
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// plain is true for the bytes that stand for themselves in a JSON string.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendMicros appends nanoseconds as microseconds with three decimals.
func appendMicros(b []byte, ns int64) []byte {
	if ns < 0 {
		b = append(b, '-')
		ns = -ns
	}
	b = strconv.AppendInt(b, ns/1000, 10)
	f := ns % 1000
	return append(b, '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10))
}

func appendValue(b []byte, v Value) []byte {
	switch v.kind {
	case kindString:
		return appendString(b, v.str)
	case kindInt:
		return strconv.AppendInt(b, int64(v.num), 10)
	case kindFloat:
		f := math.Float64frombits(v.num)
		if b = appendFloat(b, f); f == math.Trunc(f) && math.Abs(f) < 1e21 { // so that it is told from a whole number
			b = append(b, ".0"...)
		}
		return b
	case kindBytes:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), []byte(v.str)), '"')
	case kindBool:
		return strconv.AppendBool(b, v.num == 1)
	case kindList:
		return appendList(b, &v, appendValue)
	case kindMap:
		return appendMap(b, &v, appendValue)
	}
	return append(b, "null"...)
}

func appendList(b []byte, v *Value, element func([]byte, Value) []byte) []byte {
	b = append(b, '[')
	for i, e := range v.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = element(b, e)
	}
	return append(b, ']')
}

func appendMap(b []byte, v *Value, element func([]byte, Value) []byte) []byte {
	b = append(b, '{')
	for i, e := range v.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = element(append(appendString(b, v.keys[i]), ':'), e)
	}
	return append(b, '}')
}

func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(b, `"-Infinity"`...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

// appendKey appends ,"key": (or "key": after an opening brace).
func appendKey(b []byte, key string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(appendString(b, key), ':')
}

func appendArgs(b []byte, args []Arg) []byte {
	for i := range args {
		if args[i].Key == "" {
			continue // taken out by whoever classified the event
		}
		b = appendValue(appendKey(b, args[i].Key), args[i].Value)
	}
	return b
}
