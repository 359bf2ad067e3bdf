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
	srcRTXPRO5000   = "https://www.nvidia.com/en-us/products/workstations/professional-desktop-gpus/rtx-pro-5000/"
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
		FLOPs: FLOPRates{
			FP32: 19.2 * tera, TF32: 153.4 / 2 * half * tera, FP16: 153.4 * half * tera,
			BF16: 153.4 * half * tera, INT8: 153.4 * tera,
		},
		Host: pcie(4, 16), Power: 140, SMs: 48, Source: "https://www.nvidia.com/en-us/products/workstations/rtx-a4000/",
		names: []string{"NVIDIA RTX A4000"},
	},
	{
		Name: "RTX A5000", Vendor: "NVIDIA", MemoryBandwidth: 768 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{
			FP32: 27.8 * tera, TF32: 222.2 / 2 * half * tera, FP16: 222.2 * half * tera,
			BF16: 222.2 * half * tera, INT8: 222.2 * tera,
		},
		Host: pcie(4, 16), Interconnect: 112.5 * both * giga, Domain: 2, Power: 230, SMs: 64,
		Source: "https://www.nvidia.com/en-us/products/workstations/rtx-a5000/",
		names:  []string{"NVIDIA RTX A5000"},
	},
	{
		Name: "RTX A6000", Vendor: "NVIDIA", MemoryBandwidth: 768 * giga, MemorySize: 48 * giga,
		FLOPs: FLOPRates{FP32: 38.7 * tera, TF32: 77.4 * tera, FP16: 154.8 * tera, BF16: 154.8 * tera, INT8: 309.7 * tera},
		Host:  pcie(4, 16), Interconnect: 112.5 * both * giga, Domain: 2, Power: 300, SMs: 84, Source: srcGA102,
		names: []string{"NVIDIA RTX A6000"},
	},
	{
		Name: "RTX 6000 Ada", Vendor: "NVIDIA", MemoryBandwidth: 960 * giga, MemorySize: 48 * giga,
		FLOPs: FLOPRates{
			FP32: 91.1 * tera, TF32: 182.1 * tera, FP16: 364.2 * tera, BF16: 364.2 * tera, FP8: 728.5 * tera,
			INT8: 728.5 * tera,
		},
		Host: pcie(4, 16), Power: 300, SMs: 142, Source: srcAdaPro,
		names: []string{"NVIDIA RTX 6000 Ada Generation"},
	},
	rtxAda("RTX 5000 Ada", 32, 576, 1044.4, 65.3, 250, 100,
		"https://www.nvidia.com/en-us/products/workstations/rtx-5000/"),
	rtxAda("RTX 4500 Ada", 24, 432, 634, 39.6, 210, 60, "https://www.nvidia.com/en-us/products/workstations/rtx-4500/"),
	rtxPRO("RTX PRO 6000 Blackwell Workstation", 96, 1792, 4000, 125, 600, 188, srcRTXPRO,
		"NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
	rtxPRO("RTX PRO 6000 Blackwell Max-Q", 96, 1792, 3511, 110, 300, 188, srcRTXPROMaxQ,
		"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
	rtxPRO("RTX PRO 6000 Blackwell Server", 96, 1597, 4000, 120, 600, 188, srcRTXPROServer,
		"NVIDIA RTX PRO 6000 Blackwell Server Edition"),
	rtxPRO("RTX PRO 5000 Blackwell 48GB", 48, 1344, 2064, 65, 300, 110, srcRTXPRO5000, "NVIDIA RTX PRO 5000 Blackwell"),
}

// rtxAda: the product pages give fp8 with sparsity.
func rtxAda(name string, gb, bandwidth, fp8Sparse, fp32, power float64, sms int, source string) Device {
	fp8 := fp8Sparse * half * tera
	return Device{
		Name: name, Vendor: "NVIDIA", MemoryBandwidth: bandwidth * giga, MemorySize: gb * giga,
		FLOPs: FLOPRates{FP32: fp32 * tera, TF32: fp8 / 4, FP16: fp8 / 2, BF16: fp8 / 2, FP8: fp8, INT8: fp8},
		Host:  pcie(4, 16), Power: power, SMs: sms, Source: source,
		names: []string{"NVIDIA " + name + " Generation"},
	}
}

// rtxPRO: the data sheets give fp4 with sparsity ("AI TOPS"); each doubling of the operand's width halves the
// rate, as the architecture's white paper states for every card of the family.
func rtxPRO(name string, gb, bandwidth, fp4Sparse, fp32, power float64, sms int, source, driver string) Device {
	fp4 := fp4Sparse * half * tera
	return Device{
		Name: name, Vendor: "NVIDIA", MemoryBandwidth: bandwidth * giga, MemorySize: gb * giga,
		FLOPs: FLOPRates{
			FP32: fp32 * tera, TF32: fp4 / 8, FP16: fp4 / 4, BF16: fp4 / 4, FP8: fp4 / 2, FP4: fp4,
			INT8: fp4 / 2,
		},
		Host: pcie(5, 16), Power: power, SMs: sms, Source: source,
		names: []string{driver},
	}
}

// nvidiaGeForce is the consumer cards: fp16 and fp8 with fp16 accumulation, bf16 and tf32 with fp32 accumulation (half
// the rate that the same chip has on a professional card).
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
		FLOPs: FLOPRates{
			FP32: 48.7 * tera, TF32: 48.7 * tera, FP16: 194.9 * tera, BF16: 97.5 * tera, FP8: 389.9 * tera,
			INT8: 389.9 * tera,
		},
		Host: pcie(4, 16), Power: 320, SMs: 76, Source: srcAda,
		names: []string{"NVIDIA GeForce RTX 4080"},
	},
	geForce("GeForce RTX 4070 Ti SUPER", 16, 672, 44.1, 353, 0, pcie(4, 16), 285, 66,
		"https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/rtx-4070-family/"),
	geForce("GeForce RTX 4080 SUPER", 16, 736, 52.2, 418, 0, pcie(4, 16), 320, 80,
		"https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/rtx-4080-family/"),
	{
		Name: "GeForce RTX 4090", Vendor: "NVIDIA", MemoryBandwidth: 1008 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{
			FP32: 82.6 * tera, TF32: 82.6 * tera, FP16: 330.3 * tera, BF16: 165.2 * tera, FP8: 660.6 * tera,
			INT8: 660.6 * tera,
		},
		Host: pcie(4, 16), Power: 450, SMs: 128, Source: srcAda,
		names: []string{"NVIDIA GeForce RTX 4090"},
	},
	geForce("GeForce RTX 5070", 12, 672, 30.9, 246.9, 493.9, pcie(5, 16), 250, 48, srcBlackwell),
	geForce("GeForce RTX 5070 Ti", 16, 896, 43.9, 351.5, 703, pcie(5, 16), 300, 70, srcBlackwell),
	geForce("GeForce RTX 5080", 16, 960, 56.3, 450.2, 900.4, pcie(5, 16), 360, 84, srcBlackwell),
	{
		Name: "GeForce RTX 5090", Vendor: "NVIDIA", MemoryBandwidth: 1792 * giga, MemorySize: 32 * giga,
		FLOPs: FLOPRates{
			FP32: 104.8 * tera, TF32: 104.8 * tera, FP16: 419 * tera, BF16: 209.5 * tera, FP8: 838 * tera,
			FP4: 1676 * tera, INT8: 838 * tera,
		},
		Host: pcie(5, 16), Power: 575, SMs: 170, Source: srcBlackwell,
		names: []string{"NVIDIA GeForce RTX 5090"},
	},
}

// geForce takes dense figures. The rate of fp8 with fp16 accumulation and of int8 is twice that of fp16 and four times
// that of bf16, and tf32 has that of the vector units.
func geForce(name string, gb, bandwidth, fp32, fp8, fp4 float64, host HostLink, power float64, sms int,
	source string,
) Device {
	return Device{
		Name: name, Vendor: "NVIDIA", MemoryBandwidth: bandwidth * giga, MemorySize: gb * giga,
		FLOPs: FLOPRates{FP32: fp32, TF32: fp32, FP16: fp8 / 2, BF16: fp8 / 4, FP8: fp8, FP4: fp4, INT8: fp8}.Scale(tera),
		Host:  host, Power: power, SMs: sms, Source: source,
		names: []string{"NVIDIA " + name},
	}
}
