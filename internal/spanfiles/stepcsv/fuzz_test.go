// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv_test

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"testing"

	"github.com/otelgpu/otelgpu/internal/spanfiles/stepcsv"
)

// Any existing file is either left unchanged or continued: every complete line is kept, and the new
// row has as many CSV fields as the header.
func FuzzOpen(f *testing.F) {
	for _, s := range []string{
		"", header, header + "\n", header + "\n1,2", header + ",t_eval_ms\n", header + ",t_eval_ms\r\n1\n", "step,ep", "\n",
		"a,b\n", "\"" + header + "\n\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, before []byte) {
		path := filepath.Join(t.TempDir(), "steps.csv")
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := stepcsv.Open(stepcsv.Config{Path: path})
		if err != nil {
			if after, _ := os.ReadFile(path); !bytes.HasPrefix(before, after) ||
				bytes.IndexByte(before[len(after):], '\n') >= 0 {
				t.Fatalf("refused, and changed:\n%q\n%q", before, after)
			}
			return
		}
		if err := w.Write(row(1)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if complete := before[:bytes.LastIndexByte(before, '\n')+1]; !bytes.HasPrefix(after, complete) {
			t.Fatalf("complete lines are gone:\n%q\n%q", before, after)
		}
		first, _, _ := bytes.Cut(after, []byte("\n"))
		last := after[bytes.LastIndexByte(after[:len(after)-1], '\n')+1:]
		head, err := csv.NewReader(bytes.NewReader(first)).Read()
		if err != nil {
			t.Fatal(err)
		}
		added, err := csv.NewReader(bytes.NewReader(last)).Read()
		if err != nil || len(added) != len(head) {
			t.Fatalf("%d fields below %d columns: %v", len(added), len(head), err)
		}
	})
}
