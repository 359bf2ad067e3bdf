// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

// Sources of models for markets with export limits. NVIDIA's own sheets of them are not on its public pages; a figure
// is here where two public documents agree, and unknown otherwise (as FP64 of the H800, SMs of the L2).
const (
	srcA800 = "https://tweakers.net/nieuws/203182/nvidia-introduceert-a800-gpu-voor-china-die-niet-onder-exportrestricties-vs-valt.html"
	srcH800 = "https://chaoqing-i.com/upload/20231128/NVIDIA%20H800%20GPU%20Datasheet.pdf"
	srcH20  = "https://www.tweaktown.com/news/95224/nvidias-tweaked-h20-ai-gpu-enters-mass-production-in-q2-2024-destined-for-china/index.html"
	srcL2   = "https://www.tomshardware.com/pc-components/gpus/new-nvidia-ai-gpus-designed-to-get-around-us-export-bans-come-to-china-h20-l20-and-l2-to-fill-void-left-by-restricted-models"
	srcL20  = "https://www.topcpu.net/en/gpu-c/a40-pcie-vs-l20"
)

var h20 = dense{1, 44, 74, 148, 148, 296, 0, 296}

// nvidiaExport are variants of data-center models with slower links (A800, H800: 400 GB/s of NVLink in both directions)
// or less arithmetic (H20, L20, L2). The H20 with 141 GB has the memory of the H200. The power of H20, L20 and L2 is
// the limit that nvidia-smi prints on machines that have them; first reports had 400 W for the H20 and 275 W for the
// L20.
var nvidiaExport = []Device{
	nvidia("A800 SXM4 80GB", 80, 2039, 400, 108, pcie(4, 16), ga100, srcA800,
		"NVIDIA A800-SXM4-80GB").linked(400, 8).sliced(migA100x80),
	nvidia("A800 PCIe 80GB", 80, 1935, 300, 108, pcie(4, 16), ga100, srcA800,
		"NVIDIA A800 80GB PCIe").linked(400, 2).sliced(migA100x80),
	nvidia("H800 SXM5 80GB", 80, 3350, 700, 132, pcie(5, 16), dense{0, 67, 494.5, 989.5, 989.5, 1979, 0, 1979}, srcH800,
		"NVIDIA H800").linked(400, 8).sliced(migH100),
	nvidia("H800 PCIe 80GB", 80, 2039, 350, 114, pcie(5, 16), dense{0, 51, 378, 756.5, 756.5, 1513, 0, 1513}, srcH800,
		"NVIDIA H800 PCIe").linked(400, 2),
	nvidia("H20 96GB", 96, 4000, 500, 78, pcie(5, 16), h20, srcH20, "NVIDIA H20").linked(900, 8),
	nvidia("H20 141GB", 141, 4800, 500, 78, pcie(5, 16), h20, srcH20, "NVIDIA H20-3e").linked(900, 8),
	nvidia("L20", 48, 864, 350, 92, pcie(4, 16), dense{0, 59.35, 59.75, 119.5, 119.5, 239, 0, 239}, srcL20, "NVIDIA L20"),
	nvidia("L2", 24, 300, 72, 0, pcie(4, 16), dense{0, 24.1, 48.3, 96.5, 96.5, 193, 0, 193}, srcL2, "NVIDIA L2"),
}
