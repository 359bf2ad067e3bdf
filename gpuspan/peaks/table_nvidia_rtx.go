// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

const (
	srcTuring       = "https://images.nvidia.com/aem-dam/en-zz/Solutions/design-visualization/technologies/turing-architecture/NVIDIA-Turing-Architecture-Whitepaper.pdf"
	srcGA102        = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
	srcAda          = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
	srcAdaPro       = "https://images.nvidia.com/aem-dam/en-zz/Solutions/technologies/NVIDIA-ADA-GPU-PROVIZ-Architecture-Whitepaper_1.1.pdf"
	srcBlackwell    = "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf"
	srcRTXPRO       = "https://www.nvidia.com/en-us/products/workstations/professional-desktop-gpus/rtx-pro-6000/"
	srcRTXPROMaxQ   = "https://www.nvidia.com/en-us/products/workstations/professional-desktop-gpus/rtx-pro-6000-max-q/"
	srcRTXPROServer = "https://www.nvidia.com/en-us/data-center/rtx-pro-6000-blackwell-server-edition/"
)

// nvidiaRTX is the professional cards, which accumulate fp16 in fp32 at full rate.
var nvidiaRTX = []Device{
	{
		Name: "Quadro RTX 6000", Vendor: "NVIDIA", MemoryBandwidth: 672 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{FP32: 16.3 * tera, FP16: 130.5 * tera, INT8: 261 * tera},
		Host:  pcie(3, 16), Interconnect: 100 * both * giga, Domain: 2, Power: 260, SMs: 72, Source: srcTuring,
		names: []string{"Quadro RTX 6000"},
	},
	{
		Name: "RTX A4000", Vendor: "NVIDIA", MemoryBandwidth: 448 * giga, MemorySize: 16 * giga,
		FLOPs: FLOPRates{FP32: 19.2 * tera, TF32: 153.4 / 2 * half * tera, FP16: 153.4 * half * tera, BF16: 153.4 * half * tera, INT8: 153.4 * tera},
		Host:  pcie(4, 16), Power: 140, SMs: 48, Source: "https://www.nvidia.com/en-us/products/workstations/rtx-a4000/",
		names: []string{"NVIDIA RTX A4000"},
	},
	{
		Name: "RTX A5000", Vendor: "NVIDIA", MemoryBandwidth: 768 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{FP32: 27.8 * tera, TF32: 222.2 / 2 * half * tera, FP16: 222.2 * half * tera, BF16: 222.2 * half * tera, INT8: 222.2 * tera},
		Host:  pcie(4, 16), Interconnect: 112.5 * both * giga, Domain: 2, Power: 230, SMs: 64, Source: "https://www.nvidia.com/en-us/products/workstations/rtx-a5000/",
		names: []string{"NVIDIA RTX A5000"},
	},
	{
		Name: "RTX A6000", Vendor: "NVIDIA", MemoryBandwidth: 768 * giga, MemorySize: 48 * giga,
		FLOPs: FLOPRates{FP32: 38.7 * tera, TF32: 77.4 * tera, FP16: 154.8 * tera, BF16: 154.8 * tera, INT8: 309.7 * tera},
		Host:  pcie(4, 16), Interconnect: 112.5 * both * giga, Domain: 2, Power: 300, SMs: 84, Source: srcGA102,
		names: []string{"NVIDIA RTX A6000"},
	},
	{
		Name: "RTX 6000 Ada", Vendor: "NVIDIA", MemoryBandwidth: 960 * giga, MemorySize: 48 * giga,
		FLOPs: FLOPRates{FP32: 91.1 * tera, TF32: 182.1 * tera, FP16: 364.2 * tera, BF16: 364.2 * tera, FP8: 728.5 * tera, INT8: 728.5 * tera},
		Host:  pcie(4, 16), Power: 300, SMs: 142, Source: srcAdaPro,
		names: []string{"NVIDIA RTX 6000 Ada Generation"},
	},
	rtxPRO6000("RTX PRO 6000 Blackwell Workstation", 1792, 4000, 125, 600, srcRTXPRO, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
	rtxPRO6000("RTX PRO 6000 Blackwell Max-Q", 1792, 3511, 110, 300, srcRTXPROMaxQ, "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
	rtxPRO6000("RTX PRO 6000 Blackwell Server", 1597, 4000, 120, 600, srcRTXPROServer, "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
}

// rtxPRO6000: the data sheets give fp4 with sparsity ("AI TOPS"); each doubling of the operand's width halves the
// rate, as the architecture's white paper states for every card of the family.
func rtxPRO6000(name string, bandwidth, fp4Sparse, fp32, power float64, source, driver string) Device {
	fp4 := fp4Sparse * half * tera
	return Device{
		Name: name, Vendor: "NVIDIA", MemoryBandwidth: bandwidth * giga, MemorySize: 96 * giga,
		FLOPs: FLOPRates{FP32: fp32 * tera, TF32: fp4 / 8, FP16: fp4 / 4, BF16: fp4 / 4, FP8: fp4 / 2, FP4: fp4, INT8: fp4 / 2},
		Host:  pcie(5, 16), Power: power, SMs: 188, Source: source,
		names: []string{driver},
	}
}

// nvidiaGeForce is the consumer cards: fp16 and fp8 with fp16 accumulation, bf16 and tf32 with fp32 accumulation (half the
// rate that the same chip has on a professional card).
var nvidiaGeForce = []Device{
	{
		Name: "GeForce RTX 2080 Ti", Vendor: "NVIDIA", MemoryBandwidth: 616 * giga, MemorySize: 11 * giga,
		FLOPs: FLOPRates{FP32: 13.4 * tera, FP16: 107.6 * tera, INT8: 215.2 * tera},
		Host:  pcie(3, 16), Interconnect: 100 * both * giga, Domain: 2, Power: 250, SMs: 68, Source: srcTuring,
		names: []string{"NVIDIA GeForce RTX 2080 Ti"},
	},
	{
		Name: "GeForce RTX 3080 10GB", Vendor: "NVIDIA", MemoryBandwidth: 760 * giga, MemorySize: 10 * giga,
		FLOPs: FLOPRates{FP32: 29.8 * tera, TF32: 29.8 * tera, FP16: 119 * tera, BF16: 59.5 * tera, INT8: 238 * tera},
		Host:  pcie(4, 16), Power: 320, SMs: 68, Source: srcGA102,
		names: []string{"NVIDIA GeForce RTX 3080"},
	},
	{
		Name: "GeForce RTX 3090", Vendor: "NVIDIA", MemoryBandwidth: 936 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{FP32: 35.6 * tera, TF32: 35.6 * tera, FP16: 142 * tera, BF16: 71 * tera, INT8: 284 * tera},
		Host:  pcie(4, 16), Interconnect: 112.5 * both * giga, Domain: 2, Power: 350, SMs: 82, Source: srcGA102,
		names: []string{"NVIDIA GeForce RTX 3090"},
	},
	{
		Name: "GeForce RTX 4080", Vendor: "NVIDIA", MemoryBandwidth: 716.8 * giga, MemorySize: 16 * giga,
		FLOPs: FLOPRates{FP32: 48.7 * tera, TF32: 48.7 * tera, FP16: 194.9 * tera, BF16: 97.5 * tera, FP8: 389.9 * tera, INT8: 389.9 * tera},
		Host:  pcie(4, 16), Power: 320, SMs: 76, Source: srcAda,
		names: []string{"NVIDIA GeForce RTX 4080"},
	},
	{
		Name: "GeForce RTX 4090", Vendor: "NVIDIA", MemoryBandwidth: 1008 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{FP32: 82.6 * tera, TF32: 82.6 * tera, FP16: 330.3 * tera, BF16: 165.2 * tera, FP8: 660.6 * tera, INT8: 660.6 * tera},
		Host:  pcie(4, 16), Power: 450, SMs: 128, Source: srcAda,
		names: []string{"NVIDIA GeForce RTX 4090"},
	},
	{
		Name: "GeForce RTX 5090", Vendor: "NVIDIA", MemoryBandwidth: 1792 * giga, MemorySize: 32 * giga,
		FLOPs: FLOPRates{FP32: 104.8 * tera, TF32: 104.8 * tera, FP16: 419 * tera, BF16: 209.5 * tera, FP8: 838 * tera, FP4: 1676 * tera, INT8: 838 * tera},
		Host:  pcie(5, 16), Power: 575, SMs: 170, Source: srcBlackwell,
		names: []string{"NVIDIA GeForce RTX 5090"},
	},
}
