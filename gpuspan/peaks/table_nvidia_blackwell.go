// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

// nvidiaBlackwell is the data-center Blackwell and Blackwell Ultra. Figures of boards and superchips are divided by
// their devices. The host link of GB200 and GB300 is NVLink-C2C shared by two devices; its share is not published, so
// it is unknown here.
var nvidiaBlackwell = []Device{
	{
		Name: "B200", Vendor: "NVIDIA", MemoryBandwidth: 8000 * giga, MemorySize: 180 * giga,
		FLOPs: FLOPRates{
			FP64: 296. / 8 * tera, FP32: 600. / 8 * tera, TF32: 18e3 / 8. * half * tera, FP16: 36e3 / 8. * half * tera,
			BF16: 36e3 / 8. * half * tera, FP8: 72e3 / 8. * half * tera, FP4: 144e3 / 8. * half * tera,
			INT8: 72e3 / 8. * half * tera,
		},
		Host: pcie(5, 16), Interconnect: 1800 * both * giga, Domain: 8, Power: 1000, SMs: 148, Source: srcHGX,
		names: []string{"NVIDIA B200"},
	},
	{
		Name: "GB200", Vendor: "NVIDIA", MemoryBandwidth: 8000 * giga, MemorySize: 186 * giga,
		FLOPs: FLOPRates{
			FP64: 40 * tera, FP32: 80 * tera, TF32: 2500 * half * tera, FP16: 5000 * half * tera, BF16: 5000 * half * tera,
			FP8: 10e3 * half * tera, FP4: 20e3 * half * tera, INT8: 10e3 * half * tera,
		},
		Interconnect: 1800 * both * giga, Domain: 72, Power: 1200, SMs: 148, Source: srcGB200,
		names: []string{"NVIDIA GB200"},
	},
	{
		// FP4 dense is quoted by itself (105 PFLOP/s for eight): it is not half of the sparse figure.
		Name: "B300", Vendor: "NVIDIA", MemoryBandwidth: 8000 * giga, MemorySize: 288 * giga,
		FLOPs: FLOPRates{
			FP64: 10. / 8 * tera, FP32: 600. / 8 * tera, TF32: 18e3 / 8. * half * tera, FP16: 36e3 / 8. * half * tera,
			BF16: 36e3 / 8. * half * tera, FP8: 72e3 / 8. * half * tera, FP4: 105e3 / 8. * tera,
		},
		Host: pcie(6, 16), Interconnect: 1800 * both * giga, Domain: 8, Power: 1100, SMs: 148, Source: srcHGX,
		names: []string{"NVIDIA B300 SXM6 AC", "NVIDIA B300 SXM6", "NVIDIA B300"},
	},
	{
		Name: "GB300", Vendor: "NVIDIA", MemoryBandwidth: 8000 * giga, MemorySize: 288 * giga,
		FLOPs: FLOPRates{
			FP64: 1.3 * tera, FP32: 80 * tera, TF32: 2500 * half * tera, FP16: 5000 * half * tera, BF16: 5000 * half * tera,
			FP8: 10e3 * half * tera, FP4: 15e3 * tera,
		},
		Interconnect: 1800 * both * giga, Domain: 72, Power: 1400, SMs: 148, Source: srcGB300,
		names: []string{"NVIDIA GB300"},
	},
}
