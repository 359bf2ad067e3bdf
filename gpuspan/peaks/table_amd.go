// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

const (
	srcMI100  = "https://www.amd.com/en/products/accelerators/instinct/mi100.html"
	srcMI210  = "https://www.amd.com/en/products/accelerators/instinct/mi200/mi210.html"
	srcMI250X = "https://www.amd.com/en/products/accelerators/instinct/mi200/mi250x.html"
	srcMI250  = "https://www.amd.com/en/products/accelerators/instinct/mi200/mi250.html"
	srcMI300X = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/amd-instinct-mi300x-data-sheet.pdf"
	srcMI300A = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/amd-instinct-mi300a-data-sheet.pdf"
	srcMI325X = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/product-briefs/instinct-mi325x-datasheet.pdf"
	srcMI350X = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/product-briefs/amd-instinct-mi350x-gpu-brochure.pdf"
	srcMI355X = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/product-briefs/amd-instinct-mi355x-gpu-brochure.pdf"
)

// perDie halves the figures of an MI200 module, whose two dies are two devices to the driver.
const perDie = 0.5

var cdna3x304 = FLOPRates{
	FP64: 163.4 * tera, FP32: 163.4 * tera, TF32: 653.7 * tera, FP16: 1307.4 * tera, BF16: 1307.4 * tera,
	FP8: 2614.9 * tera, INT8: 2614.9 * tera,
}

// amdInstinct holds the matrix-core rates. CDNA 2 has no tf32 or fp8; CDNA 4 dropped tf32 in hardware.
var amdInstinct = []Device{
	{
		Name: "Instinct MI100", Vendor: "AMD", MemoryBandwidth: 1228.8 * giga, MemorySize: 32 * giga,
		FLOPs: FLOPRates{FP64: 11.5 * tera, FP32: 46.1 * tera, FP16: 184.6 * tera, BF16: 92.3 * tera, INT8: 184.6 * tera},
		Host:  pcie(4, 16), Interconnect: 276 * both * giga, Domain: 4, Power: 300, SMs: 120, Source: srcMI100,
		names: []string{"AMD Instinct MI100"},
	},
	{
		Name: "Instinct MI210", Vendor: "AMD", MemoryBandwidth: 1638.4 * giga, MemorySize: 64 * giga,
		FLOPs: FLOPRates{FP64: 45.3 * tera, FP32: 45.3 * tera, FP16: 181 * tera, BF16: 181 * tera, INT8: 181 * tera},
		Host:  pcie(4, 16), Interconnect: 300 * both * giga, Domain: 4, Power: 300, SMs: 104, Source: srcMI210,
		names: []string{"AMD Instinct MI210"},
	},
	{
		Name: "Instinct MI250 (one die)", Vendor: "AMD", MemoryBandwidth: 3276.8 * perDie * giga,
		MemorySize: 128 * perDie * giga,
		FLOPs:      FLOPRates{FP64: 90.5, FP32: 90.5, FP16: 362.1, BF16: 362.1, INT8: 362.1}.Scale(perDie * tera),
		Host:       pcie(4, 16), Power: 560 * perDie, SMs: 104, Source: srcMI250,
		names: []string{"AMD Instinct MI250"},
	},
	{
		Name: "Instinct MI250X (one die)", Vendor: "AMD", MemoryBandwidth: 3276.8 * perDie * giga,
		MemorySize: 128 * perDie * giga,
		FLOPs:      FLOPRates{FP64: 95.7, FP32: 95.7, FP16: 383, BF16: 383, INT8: 383}.Scale(perDie * tera),
		Host:       pcie(4, 16), Power: 560 * perDie, SMs: 110, Source: srcMI250X,
		names: []string{"AMD Instinct MI250X"},
	},
	{
		Name: "Instinct MI300A", Vendor: "AMD", MemoryBandwidth: 5300 * giga, MemorySize: 128 * giga,
		FLOPs: FLOPRates{
			FP64: 122.6 * tera, FP32: 122.6 * tera, TF32: 490.3 * tera, FP16: 980.6 * tera, BF16: 980.6 * tera,
			FP8: 1961.2 * tera, INT8: 1961.2 * tera,
		},
		// Host and device share one memory: there is no link to compare a copy with.
		Power: 550, SMs: 228, Source: srcMI300A,
		names: []string{"AMD Instinct MI300A"},
	},
	{
		Name: "Instinct MI300X", Vendor: "AMD", MemoryBandwidth: 5300 * giga, MemorySize: 192 * giga, FLOPs: cdna3x304,
		Host: pcie(5, 16), Interconnect: 7 * 128 * both * giga, Domain: 8, Power: 750, SMs: 304, Source: srcMI300X,
		names: []string{"AMD Instinct MI300X"},
	},
	{
		Name: "Instinct MI325X", Vendor: "AMD", MemoryBandwidth: 6000 * giga, MemorySize: 256 * giga, FLOPs: cdna3x304,
		Host: pcie(5, 16), Interconnect: 7 * 128 * both * giga, Domain: 8, Power: 1000, SMs: 304, Source: srcMI325X,
		names: []string{"AMD Instinct MI325X"},
	},
	{
		Name: "Instinct MI350X", Vendor: "AMD", MemoryBandwidth: 8000 * giga, MemorySize: 288 * giga,
		FLOPs: FLOPRates{
			FP64: 72.1 * tera, FP32: 144.2 * tera, FP16: 2306.9 * tera, BF16: 2306.9 * tera,
			FP8: 4613.7 * tera, FP4: 9227.5 * tera, INT8: 4613.7 * tera,
		},
		Host: pcie(5, 16), Interconnect: 7 * 153.6 * both * giga, Domain: 8, Power: 1000, SMs: 256, Source: srcMI350X,
		names: []string{"AMD Instinct MI350X"},
	},
	{
		Name: "Instinct MI355X", Vendor: "AMD", MemoryBandwidth: 8000 * giga, MemorySize: 288 * giga,
		FLOPs: FLOPRates{
			FP64: 78.6 * tera, FP32: 157.3 * tera, FP16: 2516.6 * tera, BF16: 2516.6 * tera,
			FP8: 5033.2 * tera, FP4: 10066.3 * tera, INT8: 5033.2 * tera,
		},
		Host: pcie(5, 16), Interconnect: 7 * 153.6 * both * giga, Domain: 8, Power: 1400, SMs: 256, Source: srcMI355X,
		names: []string{"AMD Instinct MI355X"},
	},
}
