// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rankfolders

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// write writes the profiles of ranks to a folder. Clocks differ by up to 5 s and 20 ppm, ends of a
// collective by about a microsecond.
func (j *job) write(dir string, out *run, ranks []int) (files []string, err error) {
	for _, r := range ranks {
		noise := rand.New(rand.NewPCG(uint64(r), 5))
		offset, drift := noise.Float64()*5000, (noise.Float64()-0.5)*40e-6
		path := filepath.Join(dir, fmt.Sprintf("rank%03d.pt.trace.json", r))
		if err := os.WriteFile(path, []byte(j.file(out, r, func(t float64) float64 { return 1000 + offset + t*(1+drift) }, noise)),
			0o600); err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	return files, nil
}

func (j *job) members(group string, first int) (list []int) {
	for r := range j.ranks {
		for k := range j.rounds {
			if j.rounds[k].group == group && j.group(k, r) == first {
				list = append(list, r)
				break
			}
		}
	}
	return list
}

func (j *job) file(out *run, rank int, clock func(float64) float64, noise *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H100 80GB HBM3"}],`+
		`"distributedInfo":{"backend":"nccl","rank":%d,"world_size":%d},"baseTimeNanoseconds":1700000000000000000,`+
		`"traceEvents":[`, rank, j.ranks)
	comma := ""
	emit := func(cat, name string, pid, tid int, from, to float64, args string) {
		fmt.Fprintf(&b, `%s{"ph":"X","cat":%q,"name":%q,"pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{%s}}`, comma, cat, name, pid,
			tid, clock(from)*1e3, max(0.001, (clock(to)-clock(from))*1e3), args)
		comma = ",\n"
	}
	events := slices.Clone(out.events[rank])
	slices.SortStableFunc(events, func(x, y event) int {
		if x.start < y.start {
			return -1
		}
		return 1
	})
	for s, began := range out.began[rank] {
		end := out.length
		if s+1 < j.steps {
			end = out.began[rank][s+1]
		}
		lead := j.lead * j.stepTime
		emit("user_annotation", fmt.Sprintf("ProfilerStep#%d", s+10), 400, 400, began-lead, end-lead-0.01, "")
	}
	correlation := 0
	launch := func(e *event) string {
		correlation++
		at := e.start - 0.02 - j.lead*j.stepTime
		if at < out.began[rank][e.step]-j.lead*j.stepTime { // the step launches what it runs
			at = out.began[rank][e.step] - j.lead*j.stepTime + 0.0001*float64(correlation%50)
		}
		emit("cuda_runtime", "cudaLaunchKernel", 400, 400, at, at+0.004, fmt.Sprintf(`"correlation":%d`, correlation))
		return fmt.Sprintf(`"device":0,"stream":7,"correlation":%d`, correlation)
	}
	sequence := map[string]int{}
	for i := range events {
		e := &events[i]
		switch e.kind {
		case "loader":
			emit("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 400, 400, e.start,
				e.end-0.03, "")
		case "kernel":
			emit("kernel", "gemm", 0, 7, e.start, e.end, launch(e))
		case "send", "recv":
			peer := fmt.Sprintf(`"Dst Rank":%d`, e.peer)
			if e.kind == "recv" {
				peer = fmt.Sprintf(`"Src Rank":%d`, e.peer)
			}
			stage := []int{rank, e.peer}
			slices.Sort(stage)
			emit("kernel", "ncclDevKernel_SendRecv", 0, 20, e.start, e.end, launch(e)+fmt.Sprintf(
				`,"Collective name":%q,"In msg nelems":1000000,"Out msg nelems":1000000,"Group size":2,"dtype":"BFloat16",`+
					`"Process Group Name":"pp%d_%d","Process Group Description":"pp","Process Group Ranks":"[%d, %d]",%s`,
				e.kind, stage[0], stage[1], stage[0], stage[1], peer))
		case "collective":
			group := j.rounds[e.round].group
			members := j.members(group, e.peer)
			if len(members) < 2 {
				continue
			}
			name := fmt.Sprintf("%s%d", group, e.peer)
			sequence[name]++
			const rate = 150e6 / 2 // elements per ms: 150 GB/s
			bytes := int(rate * j.rounds[e.round].move * j.stepTime)
			emit("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 0, 20, e.start, e.end+noise.Float64()*0.0015,
				launch(e)+fmt.Sprintf(`,"Collective name":"allreduce","In msg nelems":%d,"Out msg nelems":%d,"Group size":%d,`+
					`"dtype":"BFloat16","Process Group Name":%q,"Process Group Description":%q,"Process Group Ranks":"[%s]","Seq":%d`,
					bytes, bytes, len(members), name, group, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(members)), ", "), "[]"),
					sequence[name]))
		}
	}
	b.WriteString("]}\n")
	return b.String()
}
