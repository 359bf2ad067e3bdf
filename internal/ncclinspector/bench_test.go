// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/cputime"
)

// plant writes the files of a job whose ranks form one communicator and communicators of 8, with
// three collectives in turn. Rank late arrives 100 µs after the others.
func plant(t testing.TB, folder string, ranks, collectives, late int) (paths []string) {
	for r := range ranks {
		path := filepath.Join(folder, fmt.Sprintf("node%02d-pid%d.log", r/8, 41000+r))
		file, err := os.Create(path)
		require.NoError(t, err)
		w := bufio.NewWriterSize(file, 1<<20)
		for i := range collectives {
			id, name, rank, n, coll, sn := "0x97b7503ceb3ffd", "world", r, ranks, "ReduceScatter", i/3
			switch i % 3 {
			case 1:
				id, name, rank, n, coll = fmt.Sprintf("0x2163638b529b%02x", r/8), fmt.Sprintf("TP Group %d", r/8), r%8, 8, "AllReduce"
			case 2:
				coll = "AllGather"
			}
			micros := 1700 + (i*7919+r*104729)%40
			if i%3 == 1 && r/8 == late/8 && r != late {
				micros += 100
			}
			fmt.Fprintf(w, `{"header":{"id":"%s","comm_name":"%s","rank":%d,"n_ranks":%d,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":%d,"hostname":"node%02d","pid":%d},"coll_perf":{"coll":"%s","coll_sn":%d,"coll_msg_size_bytes":8388608,"coll_exec_time_us":%d,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":%.6f,"coll_busbw_gbs":%.6f}}`+"\n",
				id, name, rank, n, 1790003000000000+uint64(i)*2000+uint64(r), r/8, 41000+r, coll, sn, micros, 8388.608/float64(micros), 14680.064/float64(micros))
		}
		require.NoError(t, w.Flush())
		require.NoError(t, file.Close())
		paths = append(paths, path)
	}
	return paths
}

// BenchmarkReadFiles reports the processor time for each of a job's lines.
func BenchmarkReadFiles(b *testing.B) {
	const ranks, collectives = 64, 20_000
	paths := plant(b, b.TempDir(), ranks, collectives, 19)
	b.ReportAllocs()
	start := cputime.Used()
	for b.Loop() {
		job, problems, err := ReadFiles(b.Context(), paths)
		require.NoError(b, err)
		require.Empty(b, problems)
		require.Len(b, job.Findings(nil), 1)
	}
	b.ReportMetric(float64(cputime.Used()-start)/float64(b.N)/ranks/collectives, "cpu-ns/line")
}
