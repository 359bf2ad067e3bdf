// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

// Types of a field.
const (
	typeInt    = 'i'
	typeDouble = 'd'
	typeString = 's'
	typeBinary = 'b'
)

// Blanks: any value from these on means "none", by kind (not found, not supported, no permission).
const (
	blankInt    = int64(0x7ffffffffffffff0)
	blankDouble = 140737488355328.0
)

var blankStrings = map[string]bool{
	"<<<NULL>>>": true, "<<<NOT_FOUND>>>": true, "<<<NOT_SUPPORTED>>>": true, "<<<NOT_PERM>>>": true, "": true,
}

// Statuses of a value.
const (
	statusOK     = 0
	statusNoData = -14 // watched, no sample yet: the placeholder row of valuesSince
)

// number is the value as a double; false when it is blank or no number.
func (v *rawValue) number() (float64, bool) {
	switch v.typ {
	case typeInt:
		return float64(v.i), v.i < blankInt
	case typeDouble:
		return v.f, v.f < blankDouble // false for NaN
	}
	return 0, false
}

// text is the value as a string; false when it is blank or no string.
func (v *rawValue) text() (string, bool) {
	return v.s, v.typ == typeString && v.status == statusOK && !blankStrings[v.s]
}
