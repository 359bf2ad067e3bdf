// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// Peaks of the device that jobs run on, an A100 with 80 GB: dense BF16 and FP32 FLOP/s and bytes/s.
const (
	peakBF16  = 312e12
	peakFP32  = 19.5e12
	bandwidth = 2.039e12
)

func nanoseconds(s float64) int64 { return int64(s * 1e9) }

// matmul adds a product of m×4096 and 4096×n in BF16 at a share of the peak.
func (r *rank) matmul(m, n int64, share float64) {
	const k = 4096
	duration := nanoseconds(2 * float64(m) * float64(n) * k / (share * peakBF16))
	r.operator("aten::mm", fmt.Sprintf(`"Input Dims":[[%d,%d],[%d,%d]],"Input type":["c10::BFloat16","c10::BFloat16"]`,
		m, k, k, n), kernel{
		name: "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", duration: duration,
		blocks: max(1, m/128) * max(1, n/128),
	})
}

// attention adds fused attention of 2,048 tokens, 32 heads of 128.
func (r *rank) attention() {
	const flops = 4 * 2048 * 2048 * 128 * 32
	r.operator("aten::_flash_attention_forward", `"Input Dims":[[1,2048,32,128],[1,2048,32,128],[1,2048,32,128]],`+
		`"Input type":["c10::BFloat16","c10::BFloat16","c10::BFloat16"]`,
		kernel{
			name:     "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128,128,64,4>>",
			duration: nanoseconds(flops / (0.6 * peakBF16)), blocks: 512,
		})
}

// norm adds a layer norm of 2,048 × 4,096 numbers near the memory bandwidth.
func (r *rank) norm() {
	bytes := 2.0 * 2048 * 4096 * 2
	r.operator("aten::native_layer_norm", `"Input Dims":[[1,2048,4096],[],[4096],[4096],[]],`+
		`"Input type":["c10::BFloat16","ScalarList","c10::BFloat16","c10::BFloat16","Scalar"]`,
		kernel{
			name:     "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
			duration: nanoseconds(bytes / (0.8 * bandwidth)), blocks: 2048,
		})
}

// layer adds a layer of a transformer.
func (r *rank) layer() {
	r.norm()
	r.matmul(2048, 12288, 0.74)
	r.attention()
	r.matmul(2048, 4096, 0.72)
}

// layers runs n layers, as one graph where the style has them.
func (r *rank) layers(n int) {
	r.replay(func() {
		for range n {
			r.layer()
		}
	})
}

// elementwise adds a kernel of one operator on bytes of each of its tensors, at a share of the
// bandwidth.
func (r *rank) elementwise(operator, name string, elements int64, share float64) {
	bytes := 4 * float64(elements)
	r.operator(operator, fmt.Sprintf(`"Input Dims":[[%d]],"Input type":["c10::BFloat16"]`, elements), kernel{
		name: name, duration: nanoseconds(bytes / (share * bandwidth)), blocks: max(1, elements/1024),
	})
}

// steps runs n steps on every rank.
func (s *sim) steps(n int, f func(step int)) {
	for i := range n {
		starts := make([]int64, len(s.ranks))
		for j, r := range s.ranks {
			starts[j] = r.now
		}
		f(i)
		for j, r := range s.ranks {
			r.emit("user_annotation", fmt.Sprintf("ProfilerStep#%d", i+10), hostPID, mainThread, starts[j], r.now, "")
		}
	}
	s.each(func(r *rank) { r.wait("cudaDeviceSynchronize") })
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func (s *sim) everybody() group {
	return group{name: "0", description: "default_pg", members: upTo(len(s.ranks))}
}
