// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

// looped replays a graph whose conditional node runs its body a number of times for each launch.
// record reports whether the kernels of an iteration are recorded, and whether with the correlation
// of the launch.
func looped(launches int, wait bool, between at, record func(iteration int) (recorded, linked bool)) func(ps []*session) {
	return func(ps []*session) {
		p := ps[0]
		for n := range launches {
			p.py(func() {
				launch := p.runtime("cudaGraphLaunch", p.vary(24, 0.1))
				for i := range 24 {
					recorded, linked := record(i)
					p.graph, p.unlinked, p.lost = launch, !linked, nil
					if !recorded {
						p.lost = func(int) bool { return true }
					}
					node := p.last
					p.k(gemm, 110)
					p.k("flash_fwd_splitkv_kernel", 70)
					p.k("advance_and_test_end_kernel", 8)
					p.last = node
				}
				p.last += 3
				p.graph, p.unlinked, p.lost = 0, false, nil
				if wait {
					p.sync("cudaStreamSynchronize", 7)
				}
				between(p, "between", n, 0)
			}, "generate.py(80): <module>", "generate.py(41): decode")
		}
		p.sync("cudaDeviceSynchronize", 0)
	}
}

// graphKinds are graphs whose loops run on the device, in forms that profilers record.
func graphKinds() []fresh {
	whole := func(int) (bool, bool) { return true, true }
	first := func(i int) (bool, bool) { return i == 0, true }
	unlinked := func(i int) (bool, bool) { return true, i == 0 }
	sample := func(p *session, _ string, _, _ int) { p.spend(3500, "generate.py(60): detokenize") }
	return []fresh{
		{
			name: "loop of a graph, first iteration recorded", styles: every, want: []string{"not_recorded"}, alone: true,
			run: looped(9, true, ignore, first),
		},
		{
			name: "loop of a graph, first iteration recorded, host ahead", styles: every, want: []string{"not_recorded", "dependency"}, alone: true,
			run: looped(9, false, ignore, first),
		},
		{
			name: "loop of a graph, no iteration recorded", styles: every, want: []string{"not_recorded"}, alone: true,
			run: looped(9, true, func(p *session, _ string, _, _ int) { p.k("copy_tokens_kernel", 30) }, func(int) (bool, bool) { return false, true }),
		},
		{
			name: "loop of a graph, all iterations recorded", styles: every, want: []string{"not_judged"}, alone: true, run: looped(9, true, ignore, whole),
		},
		{
			name: "loop of a graph, without correlations", styles: every, want: []string{"not_judged"}, alone: true,
			run: looped(9, true, ignore, unlinked),
		},
		{
			name: "loop of a graph, without correlations, and host work", styles: frames, want: []string{"host_work"}, who: "detokenize", alone: true,
			run: looped(9, true, sample, unlinked),
		},
		{
			name: "loop of a graph, then host work", styles: frames, want: []string{"host_work"}, who: "detokenize", alone: true, run: looped(9, true, sample, whole),
		},
		{
			name: "large graphs of short kernels", styles: every, want: []string{"launch_bound"}, alone: true, run: func(ps []*session) {
				p := ps[0]
				for range 3 {
					p.graph = p.runtime("cudaGraphLaunch", p.vary(900, 0.1))
					for range 3000 {
						p.k("triton_poi_fused_add_mul_0", 3)
					}
					p.graph = 0
					p.sync("cudaStreamSynchronize", 7)
				}
			},
		},
	}
}
