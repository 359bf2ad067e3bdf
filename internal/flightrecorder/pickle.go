// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Opcodes of Python's pickle protocols 2 to 5 that build plain data. Every other opcode is refused,
// above all any opcode that imports a name or calls something: a dump is read from a shared folder,
// and reading it must not run anything. Reference: the comments of CPython's Lib/pickletools.py.
const (
	opMark            = '('
	opStop            = '.'
	opPop             = '0'
	opPopMark         = '1'
	opBinFloat        = 'G'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opNone            = 'N'
	opBinUnicode      = 'X'
	opAppend          = 'a'
	opAppends         = 'e'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	opEmptyList       = ']'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opSetItem         = 's'
	opTuple           = 't'
	opSetItems        = 'u'
	opEmptyDict       = '}'
	opEmptyTuple      = ')'
	opProto           = 0x80
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opShortBinUnicode = 0x8c
	opMemoize         = 0x94
	opFrame           = 0x95
)

// maxValues limits the memory that a hostile file can take to about 300 MB. A dump of 2,000 entries
// with 60 stack frames each has about 1.5 million values.
const maxValues = 16 << 20

var (
	errTruncated = errors.New("the file ends within a value (was it still being written?)")
	errStack     = errors.New("malformed pickle: an operation finds no value to work on")
)

// list is a Python list or tuple. Appending to a list that the memo refers to must change it
// everywhere.
type list struct{ items []any }

// mark separates the values of one container on the stack.
type mark struct{}

// unpickler executes the opcodes of one pickle. Values are map[string]any, *list, string, int64,
// float64, bool and nil.
type unpickler struct {
	data   []byte
	at     int
	stack  []any
	memo   map[uint32]any
	values int
}

// unpickle returns the plain data in a pickle. It imports and calls nothing.
func unpickle(data []byte) (any, error) {
	u := &unpickler{data: data, memo: map[uint32]any{}}
	for {
		op, err := u.byte()
		if err != nil {
			return nil, err
		}
		if op == opStop {
			return u.pop()
		}
		if err := u.execute(op); err != nil {
			return nil, fmt.Errorf("byte %d: %w", u.at, err)
		}
		if len(u.stack)+u.values > maxValues {
			return nil, fmt.Errorf("more than %d values", maxValues)
		}
	}
}

func (u *unpickler) execute(op byte) error {
	switch op {
	case opProto:
		version, err := u.byte()
		if err == nil && (version < 2 || version > 5) {
			err = fmt.Errorf("unsupported pickle protocol %d (2 to 5 are supported)", version)
		}
		return err
	case opFrame:
		_, err := u.take(8)
		return err
	case opMark:
		return u.push(mark{})
	case opNone:
		return u.push(nil)
	case opNewTrue:
		return u.push(true)
	case opNewFalse:
		return u.push(false)
	case opEmptyDict:
		return u.push(map[string]any{})
	case opEmptyList, opEmptyTuple:
		return u.push(&list{})
	case opBinInt, opBinInt1, opBinInt2, opLong1, opBinFloat, opBinUnicode, opShortBinUnicode:
		return u.scalar(op)
	case opBinPut, opLongBinPut, opMemoize, opBinGet, opLongBinGet:
		return u.remember(op)
	case opPop:
		_, err := u.pop()
		return err
	case opPopMark:
		_, err := u.sinceMark()
		return err
	default:
		return u.collect(op)
	}
}

// scalar pushes the number or text that follows.
func (u *unpickler) scalar(op byte) error {
	width := map[byte]int{
		opBinInt: 4, opBinInt1: 1, opBinInt2: 2, opLong1: 1, opBinFloat: 8, opBinUnicode: 4, opShortBinUnicode: 1,
	}[op]
	b, err := u.take(width)
	if err != nil {
		return err
	}
	switch op {
	case opBinInt:
		return u.push(int64(int32(binary.LittleEndian.Uint32(b))))
	case opBinInt1:
		return u.push(int64(b[0]))
	case opBinInt2:
		return u.push(int64(binary.LittleEndian.Uint16(b)))
	case opBinFloat:
		return u.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	case opLong1:
		return u.long(int(b[0]))
	case opBinUnicode:
		return u.text(uint64(binary.LittleEndian.Uint32(b)))
	default:
		return u.text(uint64(b[0]))
	}
}

// long pushes an integer of n bytes in two's complement, least significant byte first.
func (u *unpickler) long(n int) error {
	b, err := u.take(n)
	if err != nil {
		return err
	}
	if n == 0 {
		return u.push(int64(0))
	}
	fill := byte(0)
	if b[n-1]&0x80 != 0 {
		fill = 0xff
	}
	var wide [8]byte
	for i := range wide {
		wide[i] = fill
	}
	copy(wide[:], b)
	value := int64(binary.LittleEndian.Uint64(wide[:]))
	for _, extra := range b[min(n, 8):] {
		if extra != fill {
			return errors.New("an integer exceeds 64 bits")
		}
	}
	if n > 8 && (value < 0) != (fill == 0xff) {
		return errors.New("an integer exceeds 64 bits")
	}
	return u.push(value)
}

func (u *unpickler) text(n uint64) error {
	if n > uint64(len(u.data)) {
		return errTruncated
	}
	b, err := u.take(int(n))
	if err != nil {
		return err
	}
	return u.push(string(b))
}

// remember stores the newest value in the memo, or pushes one from there.
func (u *unpickler) remember(op byte) error {
	id := uint32(len(u.memo))
	if op != opMemoize {
		width := 1
		if op == opLongBinPut || op == opLongBinGet {
			width = 4
		}
		b, err := u.take(width)
		if err != nil {
			return err
		}
		id = uint32(b[0])
		if width == 4 {
			id = binary.LittleEndian.Uint32(b)
		}
	}
	if op == opBinGet || op == opLongBinGet {
		v, ok := u.memo[id]
		if !ok {
			return fmt.Errorf("malformed pickle: no value %d in its memo", id)
		}
		return u.push(v)
	}
	if len(u.stack) == 0 {
		return errStack
	}
	u.memo[id] = u.stack[len(u.stack)-1]
	return nil
}

// collect puts values of the stack into a container.
func (u *unpickler) collect(op byte) error {
	switch op {
	case opTuple1, opTuple2, opTuple3:
		n := int(op-opTuple1) + 1
		if len(u.stack) < n {
			return errStack
		}
		items := append([]any(nil), u.stack[len(u.stack)-n:]...)
		u.stack = u.stack[:len(u.stack)-n]
		return u.push(&list{items: items})
	case opTuple:
		items, err := u.sinceMark()
		if err != nil {
			return err
		}
		return u.push(&list{items: append([]any(nil), items...)})
	case opAppend, opAppends:
		items, err := u.added(op == opAppends, 1)
		if err != nil {
			return err
		}
		into, ok := u.top().(*list)
		if !ok {
			return errStack
		}
		into.items = append(into.items, items...)
		u.values += len(items)
		return nil
	case opSetItem, opSetItems:
		items, err := u.added(op == opSetItems, 2)
		if err != nil {
			return err
		}
		into, ok := u.top().(map[string]any)
		if !ok || len(items)%2 != 0 {
			return errStack
		}
		for i := 0; i < len(items); i += 2 {
			name, err := key(items[i])
			if err != nil {
				return err
			}
			into[name] = items[i+1]
		}
		u.values += len(items)
		return nil
	default:
		return fmt.Errorf("pickle opcode 0x%02x is refused: a dump of the flight recorder has plain data only", op)
	}
}

// added removes the values that go into a container: those since the mark, or the n newest.
func (u *unpickler) added(marked bool, n int) ([]any, error) {
	if marked {
		return u.sinceMark()
	}
	if len(u.stack) < n {
		return nil, errStack
	}
	items := u.stack[len(u.stack)-n:]
	u.stack = u.stack[:len(u.stack)-n]
	return items, nil
}

// key returns the text of a dictionary's key. PyTorch writes texts; the keys of some vendors'
// copies are integers.
func key(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	default:
		return "", fmt.Errorf("a key of a dictionary is a %T", v)
	}
}

func (u *unpickler) push(v any) error {
	u.stack = append(u.stack, v)
	return nil
}

func (u *unpickler) pop() (any, error) {
	if len(u.stack) == 0 {
		return nil, errStack
	}
	v := u.stack[len(u.stack)-1]
	u.stack = u.stack[:len(u.stack)-1]
	return v, nil
}

func (u *unpickler) top() any {
	if len(u.stack) == 0 {
		return nil
	}
	return u.stack[len(u.stack)-1]
}

// sinceMark removes the newest mark and returns the values above it, which are valid until the next
// push.
func (u *unpickler) sinceMark() ([]any, error) {
	for i, v := range slices.Backward(u.stack) {
		if _, ok := v.(mark); ok {
			items := u.stack[i+1:]
			u.stack = u.stack[:i]
			return items, nil
		}
	}
	return nil, errStack
}

func (u *unpickler) byte() (byte, error) {
	b, err := u.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (u *unpickler) take(n int) ([]byte, error) {
	if n < 0 || n > len(u.data)-u.at {
		return nil, errTruncated
	}
	b := u.data[u.at : u.at+n]
	u.at += n
	return b, nil
}
