// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

// Sources of models for markets with export limits. NVIDIA's own sheets of them are not on its public pages; a figure
// is here where two public documents agree, and unknown otherwise (as FP64 of the H800).
const (
	srcA800 = "https://tweakers.net/nieuws/203182/nvidia-introduceert-a800-gpu-voor-china-die-niet-onder-exportrestricties-vs-valt.html"
	srcH800 = "https://chaoqing-i.com/upload/20231128/NVIDIA%20H800%20GPU%20Datasheet.pdf"
	srcH20  = "https://www.tweaktown.com/news/95224/nvidias-tweaked-h20-ai-gpu-enters-mass-production-in-q2-2024-destined-for-china/index.html"
	srcL2   = "https://www.tomshardware.com/pc-components/gpus/new-nvidia-ai-gpus-designed-to-get-around-us-export-bans-come-to-china-h20-l20-and-l2-to-fill-void-left-by-restricted-models"
	srcL20  = "https://www.topcpu.net/en/gpu-c/a40-pcie-vs-l20"
)

// nvidiaExport are variants of data-center models with slower links (A800, H800: 400 GB/s of NVLink in both directions)
// or less arithmetic (H20, L20, L2).
var nvidiaExport = []Device{
	{
		Name: "A800 SXM4 80GB", Vendor: "NVIDIA", MemoryBandwidth: 2039 * giga, MemorySize: 80 * giga, FLOPs: ampereGA100,
		Host: pcie(4, 16), Interconnect: 400 * both * giga, Domain: 8, Power: 400, SMs: 108, Source: srcA800, mig: migA100x80,
		names: []string{"NVIDIA A800-SXM4-80GB"},
	},
	{
		Name: "A800 PCIe 80GB", Vendor: "NVIDIA", MemoryBandwidth: 1935 * giga, MemorySize: 80 * giga, FLOPs: ampereGA100,
		Host: pcie(4, 16), Interconnect: 400 * both * giga, Domain: 2, Power: 300, SMs: 108, Source: srcA800, mig: migA100x80,
		names: []string{"NVIDIA A800 80GB PCIe"},
	},
	{
		Name: "H800 SXM5 80GB", Vendor: "NVIDIA", MemoryBandwidth: 3350 * giga, MemorySize: 80 * giga,
		FLOPs: FLOPRates{
			FP32: 67 * tera, TF32: 989 * half * tera, FP16: 1979 * half * tera, BF16: 1979 * half * tera,
			FP8: 3958 * half * tera, INT8: 3958 * half * tera,
		},
		Host: pcie(5, 16), Interconnect: 400 * both * giga, Domain: 8, Power: 700, SMs: 132, Source: srcH800, mig: migH100,
		names: []string{"NVIDIA H800"},
	},
	{
		Name: "H800 PCIe 80GB", Vendor: "NVIDIA", MemoryBandwidth: 2039 * giga, MemorySize: 80 * giga,
		FLOPs: FLOPRates{
			FP32: 51 * tera, TF32: 756 * half * tera, FP16: 1513 * half * tera, BF16: 1513 * half * tera,
			FP8: 3026 * half * tera, INT8: 3026 * half * tera,
		},
		Host: pcie(5, 16), Interconnect: 400 * both * giga, Domain: 2, Power: 350, SMs: 114, Source: srcH800,
		names: []string{"NVIDIA H800 PCIe"},
	},
	{
		Name: "H20 96GB", Vendor: "NVIDIA", MemoryBandwidth: 4000 * giga, MemorySize: 96 * giga,
		FLOPs: FLOPRates{
			FP64: 1 * tera, FP32: 44 * tera, TF32: 74 * tera, FP16: 148 * tera, BF16: 148 * tera,
			FP8: 296 * tera, INT8: 296 * tera,
		},
		Host: pcie(5, 16), Interconnect: 900 * both * giga, Domain: 8, Power: 400, SMs: 78, Source: srcH20,
		names: []string{"NVIDIA H20"},
	},
	{
		// The one with HBM3e; its memory is that of the H200.
		Name: "H20 141GB", Vendor: "NVIDIA", MemoryBandwidth: 4800 * giga, MemorySize: 141 * giga,
		FLOPs: FLOPRates{
			FP64: 1 * tera, FP32: 44 * tera, TF32: 74 * tera, FP16: 148 * tera, BF16: 148 * tera,
			FP8: 296 * tera, INT8: 296 * tera,
		},
		Host: pcie(5, 16), Interconnect: 900 * both * giga, Domain: 8, SMs: 78, Source: srcH20,
		names: []string{"NVIDIA H20-3e"},
	},
	{
		Name: "L20", Vendor: "NVIDIA", MemoryBandwidth: 864 * giga, MemorySize: 48 * giga,
		FLOPs: FLOPRates{
			FP32: 59.35 * tera, TF32: 119.5 / 2 * tera, FP16: 119.5 * tera, BF16: 119.5 * tera, FP8: 239 * tera,
			INT8: 239 * tera,
		},
		Host: pcie(4, 16), Power: 275, SMs: 92, Source: srcL20,
		names: []string{"NVIDIA L20"},
	},
	{
		// How many SMs it has and what power it takes is not published.
		Name: "L2", Vendor: "NVIDIA", MemoryBandwidth: 300 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{
			FP32: 24.1 * tera, TF32: 48.3 * tera, FP16: 96.5 * tera, BF16: 96.5 * tera, FP8: 193 * tera,
			INT8: 193 * tera,
		},
		Host: pcie(4, 16), Source: srcL2,
		names: []string{"NVIDIA L2"},
	},
}
