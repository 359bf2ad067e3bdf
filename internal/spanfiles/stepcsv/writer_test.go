// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
	"github.com/otelgpu/otelgpu/internal/spanfiles/stepcsv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const header = "step,epoch,t_data_ms,t_fwd_ms,t_bwd_ms,t_opt_ms,t_comm_ms,t_overlap_ms,t_misc_ms,t_step_ms,ips_step"

func row(step int64) stepcsv.Row {
	return stepcsv.Row{
		Step: step, Epoch: 2, HasEpoch: true,
		Phases: []stepcsv.Phase{
			{Name: "data", Duration: 5 * time.Millisecond},
			{Name: "forward", Duration: 30*time.Millisecond + 1},
			{Name: "backward", Duration: 60 * time.Millisecond},
			{Name: "comm", Duration: 10 * time.Millisecond},
		},
		Overlap: 8 * time.Millisecond, Other: 3 * time.Millisecond, HasSplit: true,
		Duration: 100*time.Millisecond + 1, Items: 256,
	}
}

func write(t *testing.T, cfg stepcsv.Config, rows ...stepcsv.Row) stepcsv.Stats {
	w, err := stepcsv.Open(cfg)
	require.NoError(t, err)
	require.NoError(t, w.Write(rows...))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "a second close does nothing")
	require.ErrorIs(t, w.Write(row(1)), stepcsv.ErrClosed)
	return w.Stats()
}

func content(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func TestRowsOfARun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "steps.csv")
	bare := stepcsv.Row{Step: 12, Duration: time.Second}
	write(t, stepcsv.Config{Path: path}, row(11), bare)
	require.Equal(t, header+"\n"+
		"11,2,5.000000,30.000001,60.000000,,10.000000,8.000000,3.000000,100.000001,2560.000\n"+
		"12,,,,,,,,,1000.000000,\n", content(t, path))
}

func TestRestartsContinueTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.csv")
	cfg := stepcsv.Config{Path: path}
	write(t, cfg, row(1))
	write(t, cfg, row(2))
	once := content(t, path)
	require.Equal(t, 3, strings.Count(once, "\n"))
	require.Equal(t, 1, strings.Count(once, "step,epoch"))

	// A crash in the middle of a row.
	require.NoError(t, os.WriteFile(path, []byte(once+"3,2,5.0000"), 0o644))
	st := write(t, cfg, row(3))
	require.EqualValues(t, 1, st.Repaired)
	require.Equal(t, 4, strings.Count(content(t, path), "\n"))
	require.True(t, strings.HasPrefix(content(t, path), once+"3,2,5.000000,30"))

	// A crash in the middle of the header.
	require.NoError(t, os.WriteFile(path, []byte("step,epo"), 0o644))
	write(t, cfg, row(1))
	require.True(t, strings.HasPrefix(content(t, path), header+"\n1,"))
}

func TestRowsAddUpToTheLastDigit(t *testing.T) {
	dir := t.TempDir()
	n := 0
	property.Check(t, func(rt *property.T) {
		r := stepcsv.Row{Step: 1, HasSplit: true}
		union := property.Int64Range(0, 1e12).Draw(rt, "union")
		sum := int64(0)
		for _, p := range []string{
			"data", "forward", "backward", "optimizer", "comm", "eval", "undeclared",
			"undeclared too",
		} {
			if property.Bool().Draw(rt, p) {
				d := property.Int64Range(0, 1e12).Draw(rt, "duration")
				sum += d
				r.Phases = append(r.Phases, stepcsv.Phase{Name: p, Duration: time.Duration(d)})
			}
		}
		union = min(union, sum)
		other := property.Int64Range(0, 1e12).Draw(rt, "other")
		r.Overlap, r.Other, r.Duration = time.Duration(sum-union), time.Duration(other), time.Duration(union+other)
		n++
		path := filepath.Join(dir, fmt.Sprint(n, ".csv"))
		write(t, stepcsv.Config{Path: path, Phases: []string{"eval"}}, r)
		records, err := csv.NewReader(strings.NewReader(content(t, path))).ReadAll()
		require.NoError(rt, err)
		require.NoError(rt, os.Remove(path))
		total := new(big.Rat)
		for i, name := range records[0] {
			v, _ := new(big.Rat).SetString("0" + records[1][i])
			switch {
			case name == "t_step_ms" || name == "t_overlap_ms":
				total.Sub(total, v)
			case strings.HasPrefix(name, "t_"):
				total.Add(total, v)
			}
		}
		require.Zero(rt, total.Sign(), "sum of the phases − overlap + misc − step is %s", total)
	})
}

func TestFurtherPhasesHaveColumnsEvenWhenEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.csv")
	r := row(1)
	r.Phases = append(r.Phases, stepcsv.Phase{Name: "eval", Duration: time.Millisecond},
		stepcsv.Phase{Name: "surprise", Duration: 2 * time.Millisecond})
	r.Duration += 3 * time.Millisecond
	st := write(t, stepcsv.Config{Path: path, Phases: []string{"eval", "checkpoint", "data", "eval"}}, r, row(2))
	lines := strings.Split(content(t, path), "\n")
	require.Equal(t, header+",t_eval_ms,t_checkpoint_ms", lines[0])
	require.Equal(t, "1,2,5.000000,30.000001,60.000000,,10.000000,8.000000,5.000000,103.000001,2485.437,1.000000,",
		lines[1])
	require.True(t, strings.HasSuffix(lines[2], ",,"))
	require.Equal(t, 2*time.Millisecond, st.Undeclared, "without a column its time is misc")
	// Fewer phases than in the file: the header stays.
	write(t, stepcsv.Config{Path: path}, row(3))
	require.Equal(t, 2, strings.Count(strings.Split(content(t, path), "\n")[3], ",")-strings.Count(header, ","))
}

func TestForeignFilesAreNeverChanged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "steps.csv")
	for before, want := range map[string]string{
		"loss,step\n1,2\n":             "its header is \"loss,step\"",
		header + "\n1\n":               "its header has no column t_eval_ms",
		"some notes without an end":    "it contains something other than steps",
		header + ",t_x\n":              "its header is",
		"\"unterminated\nand more\n\n": "its header cannot be read",
	} {
		require.NoError(t, os.WriteFile(path, []byte(before), 0o644))
		_, err := stepcsv.Open(stepcsv.Config{Path: path, Phases: []string{"eval"}})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
		require.Equal(t, before, content(t, path))
	}
	for want, cfg := range map[string]stepcsv.Config{
		"needs a path":               {},
		"cannot open step CSV":       {Path: dir},
		"not a directory":            {Path: filepath.Join(path, "x", "steps.csv")},
		"phase \"a,b\" cannot have":  {Path: filepath.Join(dir, "a.csv"), Phases: []string{"a,b"}},
		"phase \"misc\" cannot have": {Path: filepath.Join(dir, "a.csv"), Phases: []string{"misc"}},
	} {
		_, err := stepcsv.Open(cfg)
		require.ErrorContains(t, err, want)
	}
}

// As the ranks of a job on a shared file system do.
func TestProcessesThatOpenOneFileAtOnceWriteOneHeader(t *testing.T) {
	dir := t.TempDir()
	for n := range 100 {
		path := filepath.Join(dir, fmt.Sprint(n), "steps.csv")
		start := make(chan struct{})
		done := make(chan error)
		for i := range int64(8) {
			go func() {
				<-start
				w, err := stepcsv.Open(stepcsv.Config{Path: path})
				if err == nil {
					err = errors.Join(w.Write(row(i)), w.Close())
				}
				done <- err
			}()
		}
		close(start)
		for range 8 {
			require.NoError(t, <-done)
		}
		text := content(t, path)
		require.Equal(t, 9, strings.Count(text, "\n"))
		require.Equal(t, 1, strings.Count(text, "step,"))
		require.True(t, strings.HasPrefix(text, header+"\n"))
		files, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, files, 1, "nothing else is left")
	}
}

func TestProcessesThatAppendToOneFileDoNotMixRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.csv")
	write(t, stepcsv.Config{Path: path})
	var wg sync.WaitGroup
	for i := range int64(4) {
		w, err := stepcsv.Open(stepcsv.Config{Path: path})
		require.NoError(t, err)
		wg.Go(func() {
			for range 200 {
				require.NoError(t, w.Write(row(i)))
			}
			require.NoError(t, w.Close())
		})
	}
	wg.Wait()
	records, err := csv.NewReader(strings.NewReader(content(t, path))).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 801)
}

// Another program, such as logrotate, moves or removes the file.
func TestFileThatIsMovedOrRemovedIsReadFromTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.csv")
	w, err := stepcsv.Open(stepcsv.Config{Path: path})
	require.NoError(t, err)
	defer w.Close()
	steps := func() []string {
		lines := strings.Split(strings.TrimSpace(content(t, path)), "\n")
		require.Equal(t, header, lines[0])
		for i := range lines {
			lines[i], _, _ = strings.Cut(lines[i], ",")
		}
		return lines[1:]
	}
	require.NoError(t, w.Write(row(1)))
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, w.Write(row(2)))
	require.Equal(t, []string{"2"}, steps())
	require.NoError(t, os.Remove(path))
	require.NoError(t, w.Write(row(3), row(4)))
	require.Equal(t, []string{"3", "4"}, steps())
	require.NoError(t, os.Rename(path+".1", path))
	require.NoError(t, w.Write(row(5)))
	require.Equal(t, []string{"1", "5"}, steps(), "another file of steps is continued")
}
