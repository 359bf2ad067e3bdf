// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tape is a Handler that records its calls as text.
type tape struct {
	events   []map[string]string
	meta     map[string]string
	unwanted byte
}

func (r *tape) Wants(phase byte) bool { return r.unwanted == 0 || phase != r.unwanted }

func (r *tape) Event(e *Event) error {
	m := map[string]string{}
	for k, v := range map[string][]byte{
		"cat": e.Cat, "name": e.Name, "pid": e.PID, "tid": e.TID, "ts": e.TS, "dur": e.Dur,
		"args": e.Args,
	} {
		if len(v) > 0 {
			m[k] = string(v)
		}
	}
	if e.Phase != 0 {
		m["ph"] = string(e.Phase)
	}
	r.events = append(r.events, m)
	return nil
}

func (r *tape) Meta(k, v []byte) error {
	if r.meta == nil {
		r.meta = map[string]string{}
	}
	r.meta[string(k)] = string(v)
	return nil
}

func TestEventsOfAnUnwantedPhaseAreOnlyCounted(t *testing.T) {
	const text = `[{"id": 1, "ph": "s", "x": {"y": [1, "}"]}}, {"ph": "X", "name": "a"}, {"name": "b", "ph": "s"}, {"ph": "s"}]`
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
		h := &tape{unwanted: 's'}
		st, err := Read(r, h)
		require.NoError(t, err)
		assert.Equal(t, int64(4), st.Events)
		assert.Equal(t, []map[string]string{{"ph": "X", "name": "a"}}, h.events)
	}
	for _, broken := range []string{
		`[{"ph": "s", "x": ]}`, `[{"ph": "s", "x": [}]`,
		`{"traceEvents": [{"ph": "s", "x": "`,
	} {
		_, err := Read(strings.NewReader(broken), &tape{unwanted: 's'})
		assert.Error(t, err, broken)
	}
}

const sample = `{
  "schemaVersion": 1, "deviceProperties": [ {"id": 0, "name": "a \"quoted\" ] }"} ],
  "traceEvents" : [
    {"ph": "X", "cat": "cpu_op", "name": "back\\slash\\", "pid": 7, "tid": "stream 7", "ts": 1.250, "dur": "3",
     "args": {"Input Dims": [[1, 2], []], "text": "}]\"{[", "n": null}},
    {},
    {"args": "none", "ph": "i", "other": {"deep": [[[{"x": 1}]]]}, "name": "\u00e9"}
  ],
  "displayTimeUnit": "ms", "baseTimeNanoseconds": 1711964646000000000
}`

var wanted = tape{
	events: []map[string]string{
		{
			"ph": "X", "cat": "cpu_op", "name": `back\\slash\\`, "pid": "7", "tid": `"stream 7"`, "ts": "1.250", "dur": `"3"`,
			"args": `{"Input Dims": [[1, 2], []], "text": "}]\"{[", "n": null}`,
		},
		{},
		{"ph": "i", "name": `\u00e9`},
	},
	meta: map[string]string{
		"schemaVersion": "1", "deviceProperties": `[ {"id": 0, "name": "a \"quoted\" ] }"} ]`, "displayTimeUnit": `"ms"`,
		"baseTimeNanoseconds": "1711964646000000000",
	},
}

func TestEveryFieldIsPassedOn(t *testing.T) {
	var r tape
	st, err := Read(strings.NewReader(sample), &r)
	require.NoError(t, err)
	assert.Equal(t, wanted, r)
	assert.Equal(t, Stats{Bytes: int64(len(sample)), Events: 3}, st)
}

// TestLayoutsOfOtherEventsChangeNothing reads events whose members, spaces and values repeat in
// every combination.
func TestLayoutsOfOtherEventsChangeNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	choices := [][2][]string{
		{{"ph"}, {`"X"`, `"X"`, `"X"`, `"s"`, `"i"`, `""`, `7`}},
		{{"cat"}, {`"kernel"`, `"cpu_op"`, `"` + strings.Repeat("c", 300) + `"`, `""`}},
		{{"name"}, {`"a"`, `"a" `, `"b}"`, `""`, `[1, {}]`}},
		{{"pid", "id"}, {`1`, `12`, `"p"`, `12e3`}},
		{{"tid"}, {`7`, `70`}},
		{{"ts"}, {`1.25`, `123456789012.125`, `-3`}},
		{{"dur", "Ev Idx"}, {`0`, `10`}},
		{{"args"}, {`{}`, `{"a": "}"}`, `{"b": {"c": [1]}}`}},
	}
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	var text strings.Builder
	var want []map[string]string
	events := 20_000
	for i := range events {
		text.WriteString(map[bool]string{true: "[{", false: ", {"}[i == 0])
		event, between := map[string]string{}, ""
		for _, c := range choices {
			if r.IntN(10) == 0 {
				continue
			}
			key, value := pick(c[0]), pick(c[1])
			text.WriteString(between + pick([]string{"", " "}) + `"` + key + `": ` + value)
			between = ","
			switch value = strings.TrimSpace(value); {
			case key == "id", key == "Ev Idx", key == "ph" && value[0] != '"':
				continue
			case key == "ph":
				value = value[:min(2, len(value)-1)]
				fallthrough
			case key == "cat", key == "name" && value[0] == '"':
				value = strings.Trim(value, `"`)
			}
			if value != "" {
				event[key] = value
			}
		}
		text.WriteString(pick([]string{"}", "\n}"}))
		if event["ph"] != "s" {
			want = append(want, event)
		}
	}
	h := &tape{unwanted: 's'}
	st, err := Read(strings.NewReader(text.String()+"]"), h)
	require.NoError(t, err)
	assert.EqualValues(t, events, st.Events)
	require.Equal(t, len(want), len(h.events))
	for i := range want {
		require.Equal(t, want[i], h.events[i], "event %d", i)
	}
}

func TestReadsOfAnySizeGiveTheSame(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"one byte":  iotest.OneByteReader(strings.NewReader(sample)),
		"half":      iotest.HalfReader(strings.NewReader(sample)),
		"data+EOF":  iotest.DataErrReader(strings.NewReader(sample)),
		"with mark": strings.NewReader("\xef\xbb\xbf" + sample),
	} {
		var got tape
		_, err := Read(r, &got)
		require.NoError(t, err, name)
		assert.Equal(t, wanted, got, name)
	}
}

func TestEventsLongerThanTheWindow(t *testing.T) {
	long := strings.Repeat("x", 3*window)
	text := `[{"name":"` + long + `"},{"args":{"a":"` + long + `"}},{"name":"end"}]`
	var got tape
	st, err := Read(strings.NewReader(text), &got)
	require.NoError(t, err)
	assert.Equal(t, int64(3), st.Events)
	assert.Equal(t, long, got.events[0]["name"])
	assert.Equal(t, "end", got.events[2]["name"])
}

// A scan that restarts after every one-byte read would process 2^45 bytes here.
func TestLongValuesCostAFewPassesHoweverLittleAReadGives(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	long := strings.Repeat("[", 4<<20) + strings.Repeat("]", 4<<20)
	for name, text := range map[string]string{
		"event": `[{"ph": "X", "args": {"x": ` + long + `}}]`,
		"other": `[` + long + `]`,
		"field": `{"a": ` + long + `, "traceEvents": []}`,
	} {
		_, err := Read(iotest.OneByteReader(strings.NewReader(text)), &tape{})
		assert.NoError(t, err, name)
		_, err = Read(iotest.OneByteReader(strings.NewReader(text[:len(text)/2])), &tape{})
		assert.ErrorIs(t, err, ErrTruncated, name)
	}
}

func TestTheLimitOnAValueIsTheOneThatIsNamed(t *testing.T) {
	field := func(length int) io.Reader { // with its quotes
		return io.MultiReader(strings.NewReader(`{"a": "`), strings.NewReader(strings.Repeat("x", length-2)),
			strings.NewReader(`", "traceEvents": []}`))
	}
	_, err := Read(field(maxWindow), &tape{})
	require.NoError(t, err)
	_, err = Read(field(maxWindow+1), &tape{})
	assert.EqualError(t, err, "broken JSON: a value at byte 6 is longer than 67108864 bytes")
}

func TestArrayWithoutItsClosingBracket(t *testing.T) {
	for _, text := range []string{
		`[{"name":"a"},{"name":"b"}`, `[{"name":"a"},{"name":"b"},]`,
		`[{"name":"a"},{"name":"b"}]`,
	} {
		st, err := Read(strings.NewReader(text), &tape{})
		require.NoError(t, err, text)
		assert.Equal(t, int64(2), st.Events)
	}
}

func TestErrorsOfTheStreamAreReturned(t *testing.T) {
	broken := errors.New("broken")
	_, err := Read(io.MultiReader(strings.NewReader(sample[:100]), iotest.ErrReader(broken)), &tape{})
	assert.ErrorIs(t, err, broken)
}

func TestErrorsNameTheLocation(t *testing.T) {
	_, err := Read(strings.NewReader(`{"traceEvents":[{"ph":"X"}, {"ph":"X" "pid":1}]}`), &tape{})
	assert.EqualError(t, err, "broken JSON at byte 38, after 1 events: a comma or bracket is missing in an event")
	assert.ErrorIs(t, err, ErrSyntax)
}

// decimal is the reference: the number times 1000, rounded half to even.
func decimal(s string) (int64, bool) {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return 0, false
	}
	r.Mul(r, big.NewRat(1000, 1))
	two := new(big.Int).Lsh(r.Denom(), 1)
	n := new(big.Int).Lsh(r.Num(), 1)
	n.Add(n, r.Denom())
	q, m := new(big.Int).DivMod(n, two, new(big.Int)) // floor(x + 1/2)
	if m.Sign() == 0 && q.Bit(0) == 1 {
		q.Sub(q, big.NewInt(1))
	}
	return q.Int64(), q.IsInt64()
}

func TestMicrosEqualTheExactDecimal(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	digits := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('0' + rnd.IntN(10))
		}
		return string(b)
	}
	for range 20000 {
		s := digits(1 + rnd.IntN(17))
		if n := rnd.IntN(7); n > 0 {
			s += "." + digits(n)
		}
		switch rnd.IntN(8) {
		case 0:
			s = "-" + s
		case 1:
			s += "e" + []string{"", "+", "-"}[rnd.IntN(3)] + digits(1)
		}
		want, ok := decimal(s)
		got, is := Micros([]byte(s))
		require.Equal(t, ok, is, s)
		if ok {
			require.Equal(t, want, got, s)
		}
	}
}

func TestMicrosRejectsNonNumbers(t *testing.T) {
	for _, s := range []string{
		"", `""`, "-", ".5", "5.", "1e", "0x10", "1_000", "NaN", "Infinity", "1/3", "1e400",
		"99999999999999999999", "true", "1.2.3",
	} {
		_, ok := Micros([]byte(s))
		assert.False(t, ok, s)
	}
	for s, want := range map[string]int64{
		"1e-500": 0, "0.0005": 0, "0.0015": 2, "-0.0015": -2, `"12"`: 12000,
		"-3": -3000,
	} {
		got, ok := Micros([]byte(s))
		assert.True(t, ok, s)
		assert.Equal(t, want, got, s)
	}
}

func TestInt(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "-5": -5, `"7"`: 7, "9223372036854775807": 1<<63 - 1, "1e3": 1000,
		"12.0": 12,
	} {
		got, ok := Int([]byte(s))
		assert.True(t, ok, s)
		assert.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "1.5", "10159970886766084423", "stream 7", "[1]", "-"} {
		_, ok := Int([]byte(s))
		assert.False(t, ok, s)
	}
}

func seeds(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "seeds", "*.json"))
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte(sample))
}

// FuzzRead compares the reader with encoding/json: it must accept every trace that encoding/json accepts, with the same
// events.
func FuzzRead(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var got tape
		st, err := Read(iotest.HalfReader(bytes.NewReader(b)), &got)
		var again tape
		_, errAgain := Read(bytes.NewReader(b), &again)
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("reads of another size: %v and %v", err, errAgain)
		}
		if err == nil {
			assert.Equal(t, again, got)
		}
		var doc struct {
			TraceEvents []map[string]json.RawMessage `json:"traceEvents"`
		}
		var top map[string]json.RawMessage
		if json.Unmarshal(b, &top) != nil || json.Unmarshal(b, &doc) != nil {
			return
		}
		if strings.Count(string(b), "raceEvents") != 1 || top["traceEvents"] == nil || top["traceEvents"][0] != '[' {
			return // encoding/json folds case and takes the last of several
		}
		for _, e := range doc.TraceEvents {
			if e == nil { // null
				return
			}
		}
		if err != nil {
			t.Fatalf("encoding/json accepts it: %v", err)
		}
		if int(st.Events) != len(doc.TraceEvents) {
			t.Fatalf("%d events, encoding/json has %d", st.Events, len(doc.TraceEvents))
		}
	})
}

// FuzzMicros compares the fast path with the definition.
func FuzzMicros(f *testing.F) {
	for _, s := range []string{"1712195495505583.2", "41.768", "1e3", "-0.0005", "\"7\"", "1.5e-3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := Micros([]byte(s))
		plain := strings.TrimSuffix(strings.TrimPrefix(s, `"`), `"`)
		if !ok || len(plain) > 60 || strings.ContainsAny(plain, "eE") && len(plain) > 20 {
			return
		}
		if want, is := decimal(plain); is && want != got {
			t.Fatalf("%q: %d, want %d", s, got, want)
		}
	})
}

// FuzzSkip compares the skipper, which processes many bytes at a time, with one that processes single bytes. Input that
// only the skipper accepts is not JSON.
func FuzzSkip(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != '{' && b[0] != '[' {
			return
		}
		end, err := skip(b, 0)
		want, ok := slowSkip(b)
		if ok && (err != nil || end != want) || !ok && err == nil && json.Valid(b[:end]) {
			t.Fatalf("skip: %d %v, byte by byte: %d %v", end, err, want, ok)
		}
	})
}

func TestObjectsAreSkippedToTheirEnd(t *testing.T) {
	for _, object := range []string{
		`{}`, `{"a": 1}`, `{"a": [[1, 2], [], "]"], "b": "["}`, // on the common path
		`{"a": {}}`, `{"a": {"b": {}}, "c": 1}`, `{"a": "}"}`, `{"a": "{", "b": "}"}`, `{"a": "x}", "b": "}y"}`, `{"a": "["}`,
		`{"a": "\""}`, `{"a": "\"}"}`, `{"a": "\\", "b": "}"}`, `{"a\"}": 1}`,
	} {
		next, err := skip([]byte(object+`, "more": {"}": "]"}`), 0)
		require.NoError(t, err, object)
		assert.Equal(t, len(object), next, object)
		_, err = skip([]byte(object[:len(object)-1]), 0)
		assert.ErrorIs(t, err, errShort, object)
	}
	for _, broken := range []string{`{"a": [1}`, `{"a": 1]}`, `{"a": {]}}`} {
		_, err := skip([]byte(broken), 0)
		assert.EqualError(t, err, "brackets do not match", broken)
	}
}

func slowSkip(b []byte) (int, bool) {
	var open []byte
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if i >= len(b) {
				return 0, false
			}
		case '{', '[':
			if open = append(open, c+2); len(open) > 1<<12 {
				return 0, false
			}
		case '}', ']':
			if len(open) <= 64 && open[len(open)-1] != c {
				return 0, false
			}
			if open = open[:len(open)-1]; len(open) == 0 {
				return i + 1, true
			}
		}
	}
	return 0, false
}

func TestElementsOfArrays(t *testing.T) {
	for array, want := range map[string][]string{
		`[]`: nil, `[1]`: {"1"}, ` [ [1, 2] , {"a": [3]},"x, ]",null ] `: {"[1, 2]", `{"a": [3]}`, `"x, ]"`, "null"},
		`[1, 2`: {"1"}, `{"a": 1}`: nil, ``: nil, `[[1,2`: nil, `[1,,2]`: {"1"},
	} {
		var have []string
		Elements([]byte(array), func(v []byte) bool { have = append(have, string(v)); return true })
		assert.Equal(t, want, have, array)
	}
	n := 0
	Elements([]byte(`[1, 2, 3]`), func([]byte) bool { n++; return n < 2 })
	assert.Equal(t, 2, n)
}
