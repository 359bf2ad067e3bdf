// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

// Units of the tables. Links are written as the sum of both directions that data sheets quote, halved in place.
const (
	giga = 1e9
	tera = 1e12
	both = 0.5 // of a figure that counts both directions
	half = 0.5 // of a figure with 2:4 sparsity
)

func pcie(generation, lanes int) HostLink { return HostLink{Generation: generation, Lanes: lanes} }

// MIG profiles: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html and the listing of
// `nvidia-smi mig -lgip`. 1g with a double share of memory has more SMs on Hopper.
var (
	migA100x40 = map[string]int{"1g.5gb": 14, "1g.10gb": 14, "2g.10gb": 28, "3g.20gb": 42, "4g.20gb": 56, "7g.40gb": 98}
	migA100x80 = map[string]int{"1g.10gb": 14, "1g.20gb": 14, "2g.20gb": 28, "3g.40gb": 42, "4g.40gb": 56, "7g.80gb": 98}
	migA30     = map[string]int{"1g.6gb": 14, "2g.12gb": 28, "4g.24gb": 56}
	migH100    = map[string]int{"1g.10gb": 16, "1g.20gb": 26, "2g.20gb": 32, "3g.40gb": 60, "4g.40gb": 64, "7g.80gb": 132}
	migH200    = map[string]int{"1g.18gb": 16, "2g.35gb": 32, "3g.71gb": 60, "4g.71gb": 64, "7g.141gb": 132}
)

const (
	srcP100     = "https://images.nvidia.com/content/pdf/tesla/whitepaper/pascal-architecture-whitepaper.pdf"
	srcP100PCIe = "https://images.nvidia.com/content/tesla/pdf/nvidia-tesla-p100-PCIe-datasheet.pdf"
	srcP4       = "https://images.nvidia.com/content/pdf/tesla/184457-Tesla-P4-Datasheet-NV-Final-Letter-Web.pdf"
	srcP40      = "https://images.nvidia.com/content/pdf/tesla/184427-Tesla-P40-Datasheet-NV-Final-Letter-Web.pdf"
	srcV100     = "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
	srcT4       = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"
	srcA100     = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
	srcA2       = "https://www.nvidia.com/en-us/data-center/products/a2/"
	srcA10      = "https://www.nvidia.com/en-us/data-center/products/a10-gpu/"
	srcA10G     = "https://d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf"
	srcA16      = "https://www.nvidia.com/en-us/data-center/products/a16-gpu/"
	srcA30      = "https://www.nvidia.com/en-us/data-center/products/a30-gpu/"
	srcA40      = "https://www.nvidia.com/en-us/data-center/a40/"
	srcL4       = "https://www.nvidia.com/en-us/data-center/l4/"
	srcL40      = "https://www.nvidia.com/en-us/data-center/l40/"
	srcL40S     = "https://www.nvidia.com/en-us/data-center/l40s/"
	srcH100     = "https://www.nvidia.com/en-us/data-center/h100/"
	srcHopper   = "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"
	srcH200     = "https://www.nvidia.com/en-us/data-center/h200/"
	srcGH200    = "https://resources.nvidia.com/en-us-grace-cpu/grace-hopper-superchip"
	srcHGX      = "https://www.nvidia.com/en-us/data-center/hgx/"
	srcGB200    = "https://www.nvidia.com/en-us/data-center/gb200-nvl72/"
	srcGB300    = "https://www.nvidia.com/en-us/data-center/gb300-nvl72/"
)

var hopperSXM = FLOPRates{
	FP64: 67 * tera, FP32: 67 * tera, TF32: 989 * half * tera, FP16: 1979 * half * tera, BF16: 1979 * half * tera,
	FP8: 3958 * half * tera, INT8: 3958 * half * tera,
}

// hopperNVL is the card of H100 and H200: a lower power limit, hence lower clocks.
var hopperNVL = FLOPRates{
	FP64: 60 * tera, FP32: 60 * tera, TF32: 835 * half * tera, FP16: 1671 * half * tera, BF16: 1671 * half * tera,
	FP8: 3341 * half * tera, INT8: 3341 * half * tera,
}

var ampereGA100 = FLOPRates{
	FP64: 19.5 * tera, FP32: 19.5 * tera, TF32: 156 * tera, FP16: 312 * tera, BF16: 312 * tera, INT8: 624 * tera,
}

// nvidiaDataCenter is Pascal to Hopper.
var nvidiaDataCenter = []Device{
	{
		Name: "P100 SXM2 16GB", Vendor: "NVIDIA", MemoryBandwidth: 732 * giga, MemorySize: 16 * giga,
		FLOPs: FLOPRates{FP64: 5.3 * tera, FP32: 10.6 * tera, FP16: 21.2 * tera},
		Host:  pcie(3, 16), Interconnect: 160 * both * giga, Domain: 8, Power: 300, SMs: 56, Source: srcP100,
		names: []string{"Tesla P100-SXM2-16GB"},
	},
	{
		Name: "P100 PCIe 16GB", Vendor: "NVIDIA", MemoryBandwidth: 732 * giga, MemorySize: 16 * giga,
		FLOPs: FLOPRates{FP64: 4.7 * tera, FP32: 9.3 * tera, FP16: 18.7 * tera},
		Host:  pcie(3, 16), Power: 250, SMs: 56, Source: srcP100PCIe,
		names: []string{"Tesla P100-PCIE-16GB"},
	},
	{
		Name: "P100 PCIe 12GB", Vendor: "NVIDIA", MemoryBandwidth: 549 * giga, MemorySize: 12 * giga,
		FLOPs: FLOPRates{FP64: 4.7 * tera, FP32: 9.3 * tera, FP16: 18.7 * tera},
		Host:  pcie(3, 16), Power: 250, SMs: 56, Source: srcP100PCIe,
		names: []string{"Tesla P100-PCIE-12GB"},
	},
	{
		Name: "P4", Vendor: "NVIDIA", MemoryBandwidth: 192 * giga, MemorySize: 8 * giga,
		FLOPs: FLOPRates{FP32: 5.5 * tera, INT8: 22 * tera},
		Host:  pcie(3, 16), Power: 75, SMs: 20, Source: srcP4,
		names: []string{"Tesla P4"},
	},
	{
		Name: "P40", Vendor: "NVIDIA", MemoryBandwidth: 346 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{FP32: 12 * tera, INT8: 47 * tera},
		Host:  pcie(3, 16), Power: 250, SMs: 30, Source: srcP40,
		names: []string{"Tesla P40"},
	},
	v100SXM("V100 SXM2 16GB", 16, "Tesla V100-SXM2-16GB"),
	v100SXM("V100 SXM2 32GB", 32, "Tesla V100-SXM2-32GB"),
	v100SXM("V100 DGX Station 32GB", 32, "Tesla V100-DGXS-32GB"),
	v100SXM("V100 DGX Station 16GB", 16, "Tesla V100-DGXS-16GB"),
	v100PCIe("V100 PCIe 16GB", 16, "Tesla V100-PCIE-16GB"),
	v100PCIe("V100 PCIe 32GB", 32, "Tesla V100-PCIE-32GB"),
	{
		Name: "V100S PCIe 32GB", Vendor: "NVIDIA", MemoryBandwidth: 1134 * giga, MemorySize: 32 * giga,
		FLOPs: FLOPRates{FP64: 8.2 * tera, FP32: 16.4 * tera, FP16: 130 * tera},
		Host:  pcie(3, 16), Power: 250, SMs: 80, Source: srcV100,
		names: []string{"Tesla V100S-PCIE-32GB"},
	},
	{
		Name: "T4", Vendor: "NVIDIA", MemoryBandwidth: 320 * giga, MemorySize: 16 * giga,
		FLOPs: FLOPRates{FP32: 8.1 * tera, FP16: 65 * tera, INT8: 130 * tera},
		Host:  pcie(3, 16), Power: 70, SMs: 40, Source: srcT4,
		names: []string{"Tesla T4"},
	},
	{
		Name: "A100 SXM4 40GB", Vendor: "NVIDIA", MemoryBandwidth: 1555 * giga, MemorySize: 40 * giga, FLOPs: ampereGA100,
		Host: pcie(4, 16), Interconnect: 600 * both * giga, Domain: 8, Power: 400, SMs: 108, Source: srcA100, mig: migA100x40,
		// PG509-200 is the module's board number, which early and custom modules give as their name.
		names: []string{"NVIDIA A100-SXM4-40GB", "NVIDIA A100-PG509-200"},
	},
	{
		Name: "A100 SXM4 80GB", Vendor: "NVIDIA", MemoryBandwidth: 2039 * giga, MemorySize: 80 * giga, FLOPs: ampereGA100,
		Host: pcie(4, 16), Interconnect: 600 * both * giga, Domain: 8, Power: 400, SMs: 108, Source: srcA100, mig: migA100x80,
		names: []string{"NVIDIA A100-SXM4-80GB"},
	},
	{
		Name: "A100 PCIe 40GB", Vendor: "NVIDIA", MemoryBandwidth: 1555 * giga, MemorySize: 40 * giga, FLOPs: ampereGA100,
		Host: pcie(4, 16), Interconnect: 600 * both * giga, Domain: 2, Power: 250, SMs: 108, Source: srcA100, mig: migA100x40,
		names: []string{"NVIDIA A100-PCIE-40GB"},
	},
	{
		Name: "A100 PCIe 80GB", Vendor: "NVIDIA", MemoryBandwidth: 1935 * giga, MemorySize: 80 * giga, FLOPs: ampereGA100,
		Host: pcie(4, 16), Interconnect: 600 * both * giga, Domain: 2, Power: 300, SMs: 108, Source: srcA100, mig: migA100x80,
		names: []string{"NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-80GB"},
	},
	{
		Name: "A2", Vendor: "NVIDIA", MemoryBandwidth: 200 * giga, MemorySize: 16 * giga,
		FLOPs: FLOPRates{FP32: 4.5 * tera, TF32: 9 * tera, FP16: 18 * tera, BF16: 18 * tera, INT8: 36 * tera},
		Host:  pcie(4, 8), Power: 60, SMs: 10, Source: srcA2,
		names: []string{"NVIDIA A2"},
	},
	{
		Name: "A10", Vendor: "NVIDIA", MemoryBandwidth: 600 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{FP32: 31.2 * tera, TF32: 62.5 * tera, FP16: 125 * tera, BF16: 125 * tera, INT8: 250 * tera},
		Host:  pcie(4, 16), Power: 150, SMs: 72, Source: srcA10,
		names: []string{"NVIDIA A10"},
	},
	{
		// More vector units than an A10, and tensor cores that accumulate in fp32 at half of its rate.
		Name: "A10G", Vendor: "NVIDIA", MemoryBandwidth: 600 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{FP32: 35 * tera, TF32: 35 * tera, FP16: 70 * tera, BF16: 70 * tera, INT8: 140 * tera},
		Host:  pcie(4, 16), Power: 300, SMs: 80, Source: srcA10G,
		names: []string{"NVIDIA A10G"},
	},
	{
		// The card has four such devices; TDP is a quarter of the card's 250 W.
		Name: "A16", Vendor: "NVIDIA", MemoryBandwidth: 200 * giga, MemorySize: 16 * giga,
		FLOPs: FLOPRates{FP32: 4.5 * tera, TF32: 9 * tera, FP16: 17.9 * tera, BF16: 17.9 * tera, INT8: 35.9 * tera},
		Host:  pcie(4, 4), Power: 62.5, SMs: 10, Source: srcA16,
		names: []string{"NVIDIA A16"},
	},
	{
		Name: "A30", Vendor: "NVIDIA", MemoryBandwidth: 933 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{
			FP64: 10.3 * tera, FP32: 10.3 * tera, TF32: 82 * tera, FP16: 165 * tera, BF16: 165 * tera,
			INT8: 330 * tera,
		},
		Host: pcie(4, 16), Interconnect: 200 * both * giga, Domain: 2, Power: 165, SMs: 56, Source: srcA30, mig: migA30,
		names: []string{"NVIDIA A30"},
	},
	{
		Name: "A40", Vendor: "NVIDIA", MemoryBandwidth: 696 * giga, MemorySize: 48 * giga,
		FLOPs: FLOPRates{FP32: 37.4 * tera, TF32: 74.8 * tera, FP16: 149.7 * tera, BF16: 149.7 * tera, INT8: 299.3 * tera},
		Host:  pcie(4, 16), Interconnect: 112.5 * both * giga, Domain: 2, Power: 300, SMs: 84, Source: srcA40,
		names: []string{"NVIDIA A40"},
	},
	{
		Name: "L4", Vendor: "NVIDIA", MemoryBandwidth: 300 * giga, MemorySize: 24 * giga,
		FLOPs: FLOPRates{
			FP32: 30.3 * tera, TF32: 120 * half * tera, FP16: 242 * half * tera, BF16: 242 * half * tera,
			FP8: 485 * half * tera, INT8: 485 * half * tera,
		},
		Host: pcie(4, 16), Power: 72, SMs: 58, Source: srcL4,
		names: []string{"NVIDIA L4"},
	},
	{
		Name: "L40", Vendor: "NVIDIA", MemoryBandwidth: 864 * giga, MemorySize: 48 * giga,
		FLOPs: FLOPRates{
			FP32: 90.5 * tera, TF32: 90.5 * tera, FP16: 181.05 * tera, BF16: 181.05 * tera, FP8: 362 * tera,
			INT8: 362 * tera,
		},
		Host: pcie(4, 16), Power: 300, SMs: 142, Source: srcL40,
		names: []string{"NVIDIA L40"},
	},
	{
		Name: "L40S", Vendor: "NVIDIA", MemoryBandwidth: 864 * giga, MemorySize: 48 * giga,
		FLOPs: FLOPRates{
			FP32: 91.6 * tera, TF32: 183 * tera, FP16: 362.05 * tera, BF16: 362.05 * tera, FP8: 733 * tera,
			INT8: 733 * tera,
		},
		Host: pcie(4, 16), Power: 350, SMs: 142, Source: srcL40S,
		names: []string{"NVIDIA L40S"},
	},
	{
		Name: "H100 SXM5 80GB", Vendor: "NVIDIA", MemoryBandwidth: 3350 * giga, MemorySize: 80 * giga, FLOPs: hopperSXM,
		Host: pcie(5, 16), Interconnect: 900 * both * giga, Domain: 8, Power: 700, SMs: 132, Source: srcH100, mig: migH100,
		names: []string{"NVIDIA H100 80GB HBM3"},
	},
	{
		Name: "H100 PCIe 80GB", Vendor: "NVIDIA", MemoryBandwidth: 2039 * giga, MemorySize: 80 * giga,
		FLOPs: FLOPRates{
			FP64: 51 * tera, FP32: 51 * tera, TF32: 756 * half * tera, FP16: 1513 * half * tera, BF16: 1513 * half * tera,
			FP8: 3026 * half * tera, INT8: 3026 * half * tera,
		},
		Host: pcie(5, 16), Interconnect: 600 * both * giga, Domain: 2, Power: 350, SMs: 114, Source: srcHopper,
		names: []string{"NVIDIA H100 PCIe"},
	},
	{
		Name: "H100 NVL", Vendor: "NVIDIA", MemoryBandwidth: 3938 * giga, MemorySize: 94 * giga, FLOPs: hopperNVL,
		Host: pcie(5, 16), Interconnect: 600 * both * giga, Domain: 2, Power: 400, SMs: 132, Source: srcH100,
		names: []string{"NVIDIA H100 NVL"},
	},
	{
		Name: "H200 SXM", Vendor: "NVIDIA", MemoryBandwidth: 4800 * giga, MemorySize: 141 * giga, FLOPs: hopperSXM,
		Host: pcie(5, 16), Interconnect: 900 * both * giga, Domain: 8, Power: 700, SMs: 132, Source: srcH200, mig: migH200,
		names: []string{"NVIDIA H200"},
	},
	{
		Name: "H200 NVL", Vendor: "NVIDIA", MemoryBandwidth: 4800 * giga, MemorySize: 141 * giga, FLOPs: hopperNVL,
		Host: pcie(5, 16), Interconnect: 900 * both * giga, Domain: 4, Power: 600, SMs: 132, Source: srcH200,
		names: []string{"NVIDIA H200 NVL"},
	},
	{
		// The driver names the size of the CPU's memory.
		Name: "GH200 96GB", Vendor: "NVIDIA", MemoryBandwidth: 4000 * giga, MemorySize: 96 * giga, FLOPs: hopperSXM,
		Host: HostLink{C2C: 900 * both * giga}, Interconnect: 900 * both * giga, Domain: 32, SMs: 132, Source: srcGH200,
		names: []string{"NVIDIA GH200 480GB", "NVIDIA GH200 120GB"},
	},
	{
		Name: "GH200 144GB", Vendor: "NVIDIA", MemoryBandwidth: 4900 * giga, MemorySize: 144 * giga, FLOPs: hopperSXM,
		Host: HostLink{C2C: 900 * both * giga}, Interconnect: 900 * both * giga, Domain: 32, SMs: 132, Source: srcGH200,
		names: []string{"NVIDIA GH200 144G HBM3e"},
	},
}

// v100SXM is also the card of the DGX Station, which has NVLink and whose four cards are quoted at 500 TFLOP/s
// fp16 together.
func v100SXM(name string, gb float64, drivers ...string) Device {
	return Device{
		Name: name, Vendor: "NVIDIA", MemoryBandwidth: 900 * giga, MemorySize: gb * giga,
		FLOPs: FLOPRates{FP64: 7.8 * tera, FP32: 15.7 * tera, FP16: 125 * tera},
		Host:  pcie(3, 16), Interconnect: 300 * both * giga, Domain: 8, Power: 300, SMs: 80, Source: srcV100,
		names: drivers,
	}
}

func v100PCIe(name string, gb float64, driver string) Device {
	return Device{
		Name: name, Vendor: "NVIDIA", MemoryBandwidth: 900 * giga, MemorySize: gb * giga,
		FLOPs: FLOPRates{FP64: 7 * tera, FP32: 14 * tera, FP16: 112 * tera},
		Host:  pcie(3, 16), Power: 250, SMs: 80, Source: srcV100,
		names: []string{driver},
	}
}
