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
	srcA4000        = "https://www.nvidia.com/en-us/products/workstations/rtx-a4000/"
	srcA5000        = "https://www.nvidia.com/en-us/products/workstations/rtx-a5000/"
	srcAda5000      = "https://www.nvidia.com/en-us/products/workstations/rtx-5000/"
	srcAda4500      = "https://www.nvidia.com/en-us/products/workstations/rtx-4500/"
	src4070         = "https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/rtx-4070-family/"
	src4080         = "https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/rtx-4080-family/"
)

// nvidiaRTX is the professional cards, which accumulate fp16 in fp32 at full rate. Sheets of Ada cards give fp8 and
// those of RTX PRO cards fp4 ("AI TOPS"), both with sparsity; each doubling of the operand's width halves the rate, as
// the architectures' white papers state. Of the RTX PRO 6000 Server the vendor rounds fp4 to 4 PFLOP/s but not tf32.
var nvidiaRTX = []Device{
	nvidia("Quadro RTX 6000", 24, 672, 260, 72, pcie(3, 16), dense{0, 16.3, 0, 130.5, 0, 0, 0, 261}, srcTuring,
		"Quadro RTX 6000").linked(100, 2),
	nvidia("RTX A4000", 16, 448, 140, 48, pcie(4, 16), dense{0, 19.2, 38.35, 76.7, 76.7, 0, 0, 153.4}, srcA4000,
		"NVIDIA RTX A4000"),
	nvidia("RTX A5000", 24, 768, 230, 64, pcie(4, 16), dense{0, 27.8, 55.55, 111.1, 111.1, 0, 0, 222.2}, srcA5000,
		"NVIDIA RTX A5000").linked(112.5, 2),
	nvidia("RTX A6000", 48, 768, 300, 84, pcie(4, 16), dense{0, 38.7, 77.4, 154.8, 154.8, 0, 0, 309.7}, srcGA102,
		"NVIDIA RTX A6000").linked(112.5, 2),
	nvidia("RTX 6000 Ada", 48, 960, 300, 142, pcie(4, 16),
		dense{0, 91.1, 182.1, 364.2, 364.2, 728.5, 0, 728.5}, srcAdaPro, "NVIDIA RTX 6000 Ada Generation"),
	nvidia("RTX 5000 Ada", 32, 576, 250, 100, pcie(4, 16),
		dense{0, 65.3, 130.55, 261.1, 261.1, 522.2, 0, 522.2}, srcAda5000, "NVIDIA RTX 5000 Ada Generation"),
	nvidia("RTX 4500 Ada", 24, 432, 210, 60, pcie(4, 16), dense{0, 39.6, 79.25, 158.5, 158.5, 317, 0, 317}, srcAda4500,
		"NVIDIA RTX 4500 Ada Generation"),
	nvidia("RTX PRO 6000 Blackwell Workstation", 96, 1792, 600, 188, pcie(5, 16),
		dense{0, 125, 250, 500, 500, 1000, 2000, 1000}, srcRTXPRO, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
	nvidia("RTX PRO 6000 Blackwell Max-Q", 96, 1792, 300, 188, pcie(5, 16),
		dense{0, 110, 219.4375, 438.875, 438.875, 877.75, 1755.5, 877.75}, srcRTXPROMaxQ,
		"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
	nvidia("RTX PRO 6000 Blackwell Server", 96, 1597, 600, 188, pcie(5, 16),
		dense{0, 120, 234, 468, 468, 936, 1872, 936}, srcRTXPROServer, "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
	nvidia("RTX PRO 5000 Blackwell 48GB", 48, 1344, 300, 110, pcie(5, 16),
		dense{0, 65, 129, 258, 258, 516, 1032, 516}, srcRTXPRO5000, "NVIDIA RTX PRO 5000 Blackwell"),
}

// nvidiaGeForce is the consumer cards: fp16 and fp8 with fp16 accumulation, bf16 and tf32 with fp32 accumulation (half
// the rate that the same chip has on a professional card).
var nvidiaGeForce = []Device{
	nvidia("GeForce RTX 2080 Ti", 11, 616, 250, 68, pcie(3, 16), dense{0, 13.4, 0, 107.6, 0, 0, 0, 215.2}, srcTuring,
		"NVIDIA GeForce RTX 2080 Ti").linked(100, 2),
	nvidia("GeForce RTX 3080 10GB", 10, 760, 320, 68, pcie(4, 16), dense{0, 29.8, 29.8, 119, 59.5, 0, 0, 238}, srcGA102,
		"NVIDIA GeForce RTX 3080"),
	nvidia("GeForce RTX 3090", 24, 936, 350, 82, pcie(4, 16), dense{0, 35.6, 35.6, 142, 71, 0, 0, 284}, srcGA102,
		"NVIDIA GeForce RTX 3090").linked(112.5, 2),
	nvidia("GeForce RTX 4080", 16, 716.8, 320, 76, pcie(4, 16),
		dense{0, 48.7, 48.7, 194.9, 97.5, 389.9, 0, 389.9}, srcAda, "NVIDIA GeForce RTX 4080"),
	nvidia("GeForce RTX 4070 Ti SUPER", 16, 672, 285, 66, pcie(4, 16),
		dense{0, 44.1, 44.1, 176.5, 88.25, 353, 0, 353}, src4070, "NVIDIA GeForce RTX 4070 Ti SUPER"),
	nvidia("GeForce RTX 4080 SUPER", 16, 736, 320, 80, pcie(4, 16),
		dense{0, 52.2, 52.2, 209, 104.5, 418, 0, 418}, src4080, "NVIDIA GeForce RTX 4080 SUPER"),
	nvidia("GeForce RTX 4090", 24, 1008, 450, 128, pcie(4, 16),
		dense{0, 82.6, 82.6, 330.3, 165.2, 660.6, 0, 660.6}, srcAda, "NVIDIA GeForce RTX 4090"),
	nvidia("GeForce RTX 5070", 12, 672, 250, 48, pcie(5, 16),
		dense{0, 30.9, 30.9, 123.45, 61.725, 246.9, 493.9, 246.9}, srcBlackwell, "NVIDIA GeForce RTX 5070"),
	nvidia("GeForce RTX 5070 Ti", 16, 896, 300, 70, pcie(5, 16),
		dense{0, 43.9, 43.9, 175.75, 87.875, 351.5, 703, 351.5}, srcBlackwell, "NVIDIA GeForce RTX 5070 Ti"),
	nvidia("GeForce RTX 5080", 16, 960, 360, 84, pcie(5, 16),
		dense{0, 56.3, 56.3, 225.1, 112.55, 450.2, 900.4, 450.2}, srcBlackwell, "NVIDIA GeForce RTX 5080"),
	nvidia("GeForce RTX 5090", 32, 1792, 575, 170, pcie(5, 16),
		dense{0, 104.8, 104.8, 419, 209.5, 838, 1676, 838}, srcBlackwell, "NVIDIA GeForce RTX 5090"),
}
