// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

// Units of data sheets.
const (
	giga = 1e9
	tera = 1e12
)

// dense are rates without sparsity in TFLOP/s, in the order of the fields.
type dense = FLOPRates

// row takes the figures of data sheets: memory in GB and GB/s, board power in W, SMs or compute units, the
// names that the driver uses. What is unknown is 0.
func row(vendor, name string, gb, bandwidth, power float64, sms int, host HostLink, rates dense, source string,
	names []string,
) Device {
	return Device{
		Name: name, Vendor: vendor, MemoryBandwidth: bandwidth * giga, MemorySize: gb * giga, FLOPs: rates.Scale(tera),
		Host: host, Power: power, SMs: sms, Source: source, names: names,
	}
}

func nvidia(name string, gb, bandwidth, power float64, sms int, host HostLink, rates dense, source string,
	drivers ...string,
) Device {
	return row("NVIDIA", name, gb, bandwidth, power, sms, host, rates, source, drivers)
}

// linked adds NVLink or Infinity Fabric: GB/s of both directions together, as data sheets say, and how many devices it
// joins.
func (d Device) linked(bothWays float64, domain int) Device {
	d.Interconnect, d.Domain = bothWays/2*giga, domain
	return d
}

// sliced adds MIG profiles.
func (d Device) sliced(profiles map[string]int) Device {
	d.mig = profiles
	return d
}

func pcie(generation, lanes int) HostLink { return HostLink{Generation: generation, Lanes: lanes} }

// c2c is NVLink-C2C of that many GB/s in both directions together.
func c2c(bothWays float64) HostLink { return HostLink{C2C: bothWays / 2 * giga} }

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

// Rates that several models share. hopperNVL is the card of H100 and H200: a lower power limit, hence lower clocks.
var (
	v100SXM   = dense{7.8, 15.7, 0, 125, 0, 0, 0, 0}
	v100PCIe  = dense{7, 14, 0, 112, 0, 0, 0, 0}
	ga100     = dense{19.5, 19.5, 156, 312, 312, 0, 0, 624}
	hopperSXM = dense{67, 67, 989. / 2, 1979. / 2, 1979. / 2, 3958. / 2, 0, 3958. / 2}
	hopperNVL = dense{60, 60, 835. / 2, 1671. / 2, 1671. / 2, 3341. / 2, 0, 3341. / 2}
)

// nvidiaDataCenter is Pascal to Hopper.
//
// The cards of a DGX Station are V100 SXM2 with NVLink; four of them are quoted at 500 TFLOP/s fp16 together. PG509-200
// is the board number of the A100 module, which early and custom modules give as their name. An A10G has more vector
// units than an A10, and tensor cores that accumulate in fp32 at half of its rate. An A16 card has four devices; the
// power is a quarter of its 250 W. Of a GH200 the driver names the size of the CPU's memory.
var nvidiaDataCenter = []Device{
	nvidia("P100 SXM2 16GB", 16, 732, 300, 56, pcie(3, 16), dense{5.3, 10.6, 0, 21.2, 0, 0, 0, 0}, srcP100,
		"Tesla P100-SXM2-16GB").linked(160, 8),
	nvidia("P100 PCIe 16GB", 16, 732, 250, 56, pcie(3, 16), dense{4.7, 9.3, 0, 18.7, 0, 0, 0, 0}, srcP100PCIe,
		"Tesla P100-PCIE-16GB"),
	nvidia("P100 PCIe 12GB", 12, 549, 250, 56, pcie(3, 16), dense{4.7, 9.3, 0, 18.7, 0, 0, 0, 0}, srcP100PCIe,
		"Tesla P100-PCIE-12GB"),
	nvidia("P4", 8, 192, 75, 20, pcie(3, 16), dense{0, 5.5, 0, 0, 0, 0, 0, 22}, srcP4, "Tesla P4"),
	nvidia("P40", 24, 346, 250, 30, pcie(3, 16), dense{0, 12, 0, 0, 0, 0, 0, 47}, srcP40, "Tesla P40"),
	nvidia("V100 SXM2 16GB", 16, 900, 300, 80, pcie(3, 16), v100SXM, srcV100, "Tesla V100-SXM2-16GB").linked(300, 8),
	nvidia("V100 SXM2 32GB", 32, 900, 300, 80, pcie(3, 16), v100SXM, srcV100, "Tesla V100-SXM2-32GB").linked(300, 8),
	nvidia("V100 DGX Station 32GB", 32, 900, 300, 80, pcie(3, 16), v100SXM, srcV100,
		"Tesla V100-DGXS-32GB").linked(300, 8),
	nvidia("V100 DGX Station 16GB", 16, 900, 300, 80, pcie(3, 16), v100SXM, srcV100,
		"Tesla V100-DGXS-16GB").linked(300, 8),
	nvidia("V100 PCIe 16GB", 16, 900, 250, 80, pcie(3, 16), v100PCIe, srcV100, "Tesla V100-PCIE-16GB"),
	nvidia("V100 PCIe 32GB", 32, 900, 250, 80, pcie(3, 16), v100PCIe, srcV100, "Tesla V100-PCIE-32GB"),
	nvidia("V100S PCIe 32GB", 32, 1134, 250, 80, pcie(3, 16), dense{8.2, 16.4, 0, 130, 0, 0, 0, 0}, srcV100,
		"Tesla V100S-PCIE-32GB"),
	nvidia("T4", 16, 320, 70, 40, pcie(3, 16), dense{0, 8.1, 0, 65, 0, 0, 0, 130}, srcT4, "Tesla T4"),
	nvidia("A100 SXM4 40GB", 40, 1555, 400, 108, pcie(4, 16), ga100, srcA100,
		"NVIDIA A100-SXM4-40GB", "NVIDIA A100-PG509-200").linked(600, 8).sliced(migA100x40),
	nvidia("A100 SXM4 80GB", 80, 2039, 400, 108, pcie(4, 16), ga100, srcA100,
		"NVIDIA A100-SXM4-80GB").linked(600, 8).sliced(migA100x80),
	nvidia("A100 PCIe 40GB", 40, 1555, 250, 108, pcie(4, 16), ga100, srcA100,
		"NVIDIA A100-PCIE-40GB").linked(600, 2).sliced(migA100x40),
	nvidia("A100 PCIe 80GB", 80, 1935, 300, 108, pcie(4, 16), ga100, srcA100,
		"NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-80GB").linked(600, 2).sliced(migA100x80),
	nvidia("A2", 16, 200, 60, 10, pcie(4, 8), dense{0, 4.5, 9, 18, 18, 0, 0, 36}, srcA2, "NVIDIA A2"),
	nvidia("A10", 24, 600, 150, 72, pcie(4, 16), dense{0, 31.2, 62.5, 125, 125, 0, 0, 250}, srcA10, "NVIDIA A10"),
	nvidia("A10G", 24, 600, 300, 80, pcie(4, 16), dense{0, 35, 35, 70, 70, 0, 0, 140}, srcA10G, "NVIDIA A10G"),
	nvidia("A16", 16, 200, 62.5, 10, pcie(4, 4), dense{0, 4.5, 9, 17.9, 17.9, 0, 0, 35.9}, srcA16, "NVIDIA A16"),
	nvidia("A30", 24, 933, 165, 56, pcie(4, 16), dense{10.3, 10.3, 82, 165, 165, 0, 0, 330}, srcA30,
		"NVIDIA A30").linked(200, 2).sliced(migA30),
	nvidia("A40", 48, 696, 300, 84, pcie(4, 16), dense{0, 37.4, 74.8, 149.7, 149.7, 0, 0, 299.3}, srcA40,
		"NVIDIA A40").linked(112.5, 2),
	nvidia("L4", 24, 300, 72, 58, pcie(4, 16), dense{0, 30.3, 60, 121, 121, 242.5, 0, 242.5}, srcL4, "NVIDIA L4"),
	nvidia("L40", 48, 864, 300, 142, pcie(4, 16), dense{0, 90.5, 90.5, 181.05, 181.05, 362, 0, 362}, srcL40,
		"NVIDIA L40"),
	nvidia("L40S", 48, 864, 350, 142, pcie(4, 16), dense{0, 91.6, 183, 362.05, 362.05, 733, 0, 733}, srcL40S,
		"NVIDIA L40S"),
	nvidia("H100 SXM5 80GB", 80, 3350, 700, 132, pcie(5, 16), hopperSXM, srcH100,
		"NVIDIA H100 80GB HBM3").linked(900, 8).sliced(migH100),
	nvidia("H100 PCIe 80GB", 80, 2039, 350, 114, pcie(5, 16), dense{51, 51, 378, 756.5, 756.5, 1513, 0, 1513}, srcHopper,
		"NVIDIA H100 PCIe").linked(600, 2),
	nvidia("H100 NVL", 94, 3938, 400, 132, pcie(5, 16), hopperNVL, srcH100, "NVIDIA H100 NVL").linked(600, 2),
	nvidia("H200 SXM", 141, 4800, 700, 132, pcie(5, 16), hopperSXM, srcH200,
		"NVIDIA H200").linked(900, 8).sliced(migH200),
	nvidia("H200 NVL", 141, 4800, 600, 132, pcie(5, 16), hopperNVL, srcH200, "NVIDIA H200 NVL").linked(900, 4),
	nvidia("GH200 96GB", 96, 4000, 0, 132, c2c(900), hopperSXM, srcGH200,
		"NVIDIA GH200 480GB", "NVIDIA GH200 120GB").linked(900, 32),
	nvidia("GH200 144GB", 144, 4900, 0, 132, c2c(900), hopperSXM, srcGH200, "NVIDIA GH200 144G HBM3e").linked(900, 32),
}

// nvidiaBlackwell is the data-center Blackwell and Blackwell Ultra. Figures of boards and superchips are divided by
// their devices. The host link of GB200 and GB300 is NVLink-C2C shared by two devices; its share is not published, so
// it is unknown here. Dense fp4 of Blackwell Ultra is quoted by itself (108 PFLOP/s for eight B300): it is not half of
// the sparse figure. The driver of a B200 names a bus of 7,680 bits at 3,996 MHz, which is the 7.7 TB/s of the sheet.
var nvidiaBlackwell = []Device{
	nvidia("B200", 180, 7700, 1000, 148, pcie(5, 16), dense{37, 75, 1125, 2250, 2250, 4500, 9000, 4500}, srcHGX,
		"NVIDIA B200").linked(1800, 8),
	nvidia("GB200", 186, 8000, 1200, 148, HostLink{}, dense{40, 80, 1250, 2500, 2500, 5000, 10000, 5000}, srcGB200,
		"NVIDIA GB200").linked(1800, 72),
	nvidia("B300", 270, 7700, 1100, 148, pcie(6, 16), dense{1.25, 75, 1125, 2250, 2250, 4500, 13500, 150}, srcHGX,
		"NVIDIA B300 SXM6 AC", "NVIDIA B300 SXM6", "NVIDIA B300").linked(1800, 8),
	nvidia("GB300", 279, 8000, 1400, 148, HostLink{}, dense{1.3, 80, 1250, 2500, 2500, 5000, 15000, 165}, srcGB300,
		"NVIDIA GB300").linked(1800, 72),
}
