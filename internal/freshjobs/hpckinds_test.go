// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import "math"

// stencil is the kernel of a time step of a solver.
func (s *sim) stencil(us float64) {
	s.launch(kern{name: "void lbm::stream_collide<double, 27>(double const*, double*, int, int, int)", dur: us, blocks: 65536, threads: 256, regs: 96})
}

func (s *sim) sweep() {
	for range 6 {
		s.stencil(420)
	}
	s.launch(kern{name: "apply_boundary(double*, int, int, int)", dur: 60, blocks: 4096, threads: 256})
}

var hpcKinds = []kind{
	{name: "solver on one device", accept: "healthy not_judged", format: "nsys", fixed: true, models: []model{a100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(12, func(int) { s.note("time step", s.sweep) })
	}},
	{name: "field copied from pageable memory in each step", accept: "pageable_copies", format: "nsys", models: []model{a100, v100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(8, func(int) {
			s.note("time step", func() {
				s.sweep()
				s.copyTo("DtoH", "Pageable", int64(s.x*7500)+1000, 7)
			})
		})
	}},
	{name: "output written in each step", accept: "host_work checkpoint", format: "nsys", models: []model{a100, h100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(8, func(int) {
			s.note("time step", s.sweep)
			s.copyTo("DtoH", "Pinned", 1<<20, 7)
			s.wait("cudaDeviceSynchronize")
			s.note("write_vtk", func() {
				s.stacks = true
				s.frame("fwrite", func() { s.busyHost(s.x * 0.8) })
				s.stacks = false
				s.busyHost(s.x * 0.2)
			})
		})
	}},
	{name: "halo exchange waits for a neighbor", accept: "waiting_for_rank", format: "nsys", models: []model{a100, v100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(8, func(int) {
			s.note("time step", func() {
				s.sweep()
				s.wait("cudaStreamSynchronize", 7)
				s.note("MPI_Allreduce", func() { s.busyHost(s.x) })
			})
		})
	}},
	{name: "scratch memory allocated in each step", accept: "allocation", format: "nsys", models: []model{a100, v100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(8, func(int) {
			s.note("time step", func() {
				if s.x > 0 {
					s.wait("cudaDeviceSynchronize")
					s.call("cudaMalloc", s.x*0.6)
				}
				s.sweep()
				if s.x > 0 {
					s.wait("cudaDeviceSynchronize")
					s.call("cudaFree", s.x*0.4)
				}
			})
		})
	}},
	{name: "managed memory touched by both sides", accept: "page_migrations", format: "nsys", models: []model{a100, v100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(6, func(int) {
			s.note("time step", func() {
				s.call("cudaLaunchKernel", 5)
				c := s.records[len(s.records)-1]
				n := int(s.x / 45)
				r := s.kernel(kern{name: "void jacobi<float>(float*, float const*, int, int)", blocks: 16384, threads: 256}, c.corr, 0)
				r.ts = s.begin(7)
				r.dur = 1500 + float64(n)*45
				at := r.ts + 5
				for range n {
					s.put(record{kind: migration, name: "HtoD", ts: at, dur: 42, bytes: 1 << 20})
					at += 45
				}
				s.place(r)
				s.wait("cudaDeviceSynchronize")
				s.host(60)
			})
		})
	}},
	{name: "tiny kernels, each waited for", accept: "synchronization launch_bound", format: "nsys", models: []model{a100, h100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(5, func(int) {
			s.note("time step", func() {
				s.sweep()
				s.wait("cudaDeviceSynchronize")
				for range int(s.x / 22) {
					s.launch(kern{name: "residual(double const*, double*, int)", dur: 6, blocks: 256, threads: 256})
					s.wait("cudaDeviceSynchronize")
					s.host(3)
				}
			})
		})
	}},
	{name: "kernels compiled at run time", accept: "compilation slow_runtime_calls warm_up", format: "nsys", models: []model{a100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(8, func(i int) {
			if i == 2 {
				s.wait("cudaDeviceSynchronize")
				s.note("nvrtcCompileProgram", func() { s.busyHost(8 * s.x * 0.9) })
				s.call("cuModuleLoadData", 8*s.x*0.1)
			}
			s.note("time step", s.sweep)
		})
	}},
	{name: "two streams that overlap", accept: "healthy not_judged", format: "nsys", fixed: true, models: []model{a100, h100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(10, func(int) {
			s.copyTo("HtoD", "Pinned", 8<<20, 14)
			s.sweep()
			s.copyTo("DtoH", "Pinned", 8<<20, 15)
			s.after(14, 7)
		})
	}},
	{name: "independent small systems one after another", accept: "low_parallelism", format: "nsys", models: []model{a100, h100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(6, func(int) {
			s.sweep()
			for range int(math.Round(s.x / 110)) {
				s.launch(kern{name: "void batched_lu<double>(double*, int*, int)", dur: 120, blocks: 12, threads: 256, regs: 128})
			}
		})
	}},
	{name: "solver of HIP with many small kernels", accept: "launch_bound", format: "rocprof", models: []model{mi300x}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(5, func(int) {
			s.sweep()
			for range int(s.x / 9) {
				s.host(3.5)
				s.launch(kern{name: "axpy(double*, double const*, double, int)", dur: 3, blocks: 512, threads: 256})
			}
		})
	}},
	{name: "solver of HIP that waits after each kernel", accept: "synchronization launch_bound", format: "rocprof", models: []model{mi300x}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(5, func(int) {
			s.sweep()
			for range int(s.x / 25) {
				s.launch(kern{name: "dot(double const*, double const*, double*, int)", dur: 8, blocks: 512, threads: 256})
				s.wait("cudaStreamSynchronize", 7)
				s.host(6)
			}
		})
	}},
	{name: "solver of HIP on a busy device", accept: "healthy not_judged", format: "rocprof", fixed: true, models: []model{mi300x}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(8, func(int) { s.note("step", s.sweep) })
	}},
	{name: "mesh refined on the host", accept: "host_work", format: "rocprof", models: []model{mi300x}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(8, func(int) {
			s.note("advance", s.sweep)
			s.copyTo("DtoH", "Pinned", 1<<18, 7)
			s.wait("cudaDeviceSynchronize")
			s.note("refine_mesh", func() { s.busyHost(s.x) })
		})
	}},
	{name: "input of JAX under Nsight", accept: "loader host_work", format: "nsys", models: []model{h100, a100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(6, func(int) {
			s.note("TSL:tf_data_iterator_get_next", func() { s.busyHost(s.x) })
			s.note("TSL:XlaModule:#hlo_module=jit_train_step,program_id=12#", func() {
				s.graph([]kern{{name: s.dev.gemm, dur: 900, blocks: 132}, {name: "loop_multiply_fusion", dur: 60, blocks: 16384}, {name: s.dev.gemm, dur: 1100, blocks: 132}, {name: "input_reduce_fusion", dur: 80, blocks: 8192}})
			})
		})
	}},
	{name: "molecular dynamics with forces on the host", accept: "host_work", format: "nsys", models: []model{a100, h100}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(10, func(int) {
			s.note("nonbonded", func() {
				s.launch(kern{name: "void nbnxn_kernel_ElecEw_VdwLJ_F_cuda(NBAtomDataGpu, NBParamGpu, gpu_plist, bool)", dur: 900, blocks: 4096, threads: 64})
				s.copyTo("DtoH", "Pinned", 1<<18, 7)
			})
			s.wait("cudaStreamSynchronize", 7)
			s.note("bonded forces", func() { s.busyHost(s.x) })
			s.copyTo("HtoD", "Pinned", 1<<18, 7)
		})
	}},
}
