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

var mi300x = dense{163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 0, 2614.9}

// amdInstinct holds the matrix-core rates. CDNA 2 has no tf32 or fp8; CDNA 4 dropped tf32 in hardware. An MI250 or
// MI250X is two devices to the driver, with half of the module's figures each. Host and device of an MI300A share one
// memory: there is no link to compare a copy with.
var amdInstinct = []Device{
	amd("Instinct MI100", 32, 1228.8, 300, 120, pcie(4, 16), dense{11.5, 46.1, 0, 184.6, 92.3, 0, 0, 184.6}, srcMI100,
		"AMD Instinct MI100").linked(276, 4),
	amd("Instinct MI210", 64, 1638.4, 300, 104, pcie(4, 16), dense{45.3, 45.3, 0, 181, 181, 0, 0, 181}, srcMI210,
		"AMD Instinct MI210").linked(300, 4),
	amd("Instinct MI250 (one die)", 64, 1638.4, 280, 104, pcie(4, 16),
		dense{45.25, 45.25, 0, 181.05, 181.05, 0, 0, 181.05}, srcMI250, "AMD Instinct MI250"),
	amd("Instinct MI250X (one die)", 64, 1638.4, 280, 110, pcie(4, 16),
		dense{47.85, 47.85, 0, 191.5, 191.5, 0, 0, 191.5}, srcMI250X, "AMD Instinct MI250X"),
	amd("Instinct MI300A", 128, 5300, 550, 228, HostLink{},
		dense{122.6, 122.6, 490.3, 980.6, 980.6, 1961.2, 0, 1961.2}, srcMI300A, "AMD Instinct MI300A"),
	amd("Instinct MI300X", 192, 5300, 750, 304, pcie(5, 16), mi300x, srcMI300X, "AMD Instinct MI300X").linked(896, 8),
	amd("Instinct MI325X", 256, 6000, 1000, 304, pcie(5, 16), mi300x, srcMI325X, "AMD Instinct MI325X").linked(896, 8),
	amd("Instinct MI350X", 288, 8000, 1000, 256, pcie(5, 16),
		dense{72.1, 144.2, 0, 2306.9, 2306.9, 4613.7, 9227.5, 4613.7}, srcMI350X, "AMD Instinct MI350X").linked(1075.2, 8),
	amd("Instinct MI355X", 288, 8000, 1400, 256, pcie(5, 16),
		dense{78.6, 157.3, 0, 2516.6, 2516.6, 5033.2, 10066.3, 5033.2}, srcMI355X,
		"AMD Instinct MI355X").linked(1075.2, 8),
}

func amd(name string, gb, bandwidth, power float64, units int, host HostLink, rates dense, source, driver string,
) Device {
	return row("AMD", name, gb, bandwidth, power, units, host, rates, source, []string{driver})
}
