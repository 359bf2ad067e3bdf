// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bufio"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/regularfile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// minOffset is the least number that is taken for one that was added to process ids: devices have
// smaller numbers.
const minOffset = 1000

// pidRow is a process id that is a number: a process, a device, or both.
type pidRow struct {
	pid, device   int64 // device: of its activities; -1: of several, or not stated
	first, last   int64 // positions of its events in the file
	calls, worked bool
}

// pidRows are the process ids of a file that was merged from several ranks. It reads the file for
// them alone, because only few files need them.
type pidRows struct {
	rows map[int64]*pidRow
	at   int64
}

// numberedRanks returns the ranks of the process ids of a file, counted from 1, if they are
// unambiguous; otherwise nil.
func numberedRanks(ctx context.Context, path string) map[int64]int64 {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	plain, done, err := Unpack(bufio.NewReaderSize(f, bufferSize))
	if err != nil {
		return nil
	}
	defer done()
	r := &pidRows{rows: map[int64]*pidRow{}}
	if _, err = chromejson.Read(bufio.NewReader(profilefile.WithContext(ctx, plain)), r); err != nil {
		return nil
	}
	rows := slices.SortedFunc(maps.Values(r.rows), func(a, b *pidRow) int { return cmp.Compare(a.first, b.first) })
	if ranks := numbered(blocks(rows)); ranks != nil {
		return ranks
	}
	return numbered(byOffset(rows))
}

// Wants takes ranges only.
func (*pidRows) Wants(phase byte) bool { return phase == 'X' }

// Meta does nothing.
func (*pidRows) Meta(_, _ []byte) error { return nil }

// Event notes the position of an activity, a call or an operator.
func (r *pidRows) Event(j *chromejson.Event) error {
	r.at++
	kind := category(j.Cat)
	pid, ok := chromejson.Int(j.PID)
	if !ok || !kind.Device() && kind != event.KindRuntime && kind != event.KindOperator {
		return nil
	}
	row := r.rows[pid]
	if row == nil {
		if len(r.rows) == maxRanks {
			return nil
		}
		row = &pidRow{pid: pid, device: -1, first: r.at}
		r.rows[pid] = row
	}
	row.last = r.at
	row.calls = row.calls || kind == event.KindRuntime
	if kind.Device() {
		device := deviceArg(j.Args)
		if row.worked && row.device != device {
			device = -1
		}
		row.device, row.worked = device, true
	}
	return nil
}

// blocks divides process ids by the place of their events in the file: programs that merge ranks
// write one after the other.
func blocks(rows []*pidRow) (groups [][]*pidRow) {
	end := int64(-1)
	for _, row := range rows {
		if row.first > end {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], row)
		end = max(end, row.last)
	}
	return groups
}

// byOffset divides process ids by the number that was added to them, a multiple of one number for
// each rank. An activity shows it: before, its process id was its device.
func byOffset(rows []*pidRow) [][]*pidRow {
	step := int64(0)
	for _, row := range rows {
		if !row.worked {
			continue
		}
		if row.device < 0 {
			return nil
		}
		step = gcd(row.pid-row.device, step)
	}
	if step < minOffset {
		return nil
	}
	by := map[int64][]*pidRow{}
	for _, row := range rows {
		by[row.pid/step] = append(by[row.pid/step], row)
	}
	return slices.Collect(maps.Values(by))
}

// gcd returns the greatest common divisor.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// numbered returns the ranks in the order of their devices' process ids, if each has one process
// with calls, and a device.
func numbered(groups [][]*pidRow) map[int64]int64 {
	first := func(g []*pidRow) int64 {
		least := int64(-1)
		for _, row := range g {
			if row.worked && (least < 0 || row.pid < least) {
				least = row.pid
			}
		}
		return least
	}
	for _, g := range groups {
		calls := 0
		for _, row := range g {
			if row.calls {
				calls++
			}
		}
		if calls != 1 || first(g) < 0 {
			return nil
		}
	}
	if len(groups) < 2 {
		return nil
	}
	slices.SortFunc(groups, func(a, b []*pidRow) int { return cmp.Compare(first(a), first(b)) })
	ranks := map[int64]int64{}
	for i, g := range groups {
		for _, row := range g {
			ranks[row.pid] = int64(i) + 1
		}
	}
	return ranks
}
