// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

import "testing"

// A second table: memory in GB, bandwidth in GB/s, fp32 and one rate of the tensor or matrix cores
// in TFLOP/s as quoted (so with sparsity where sparse says 2), and the board's power in W. A row of
// the first table that is missing here fails the test. The values come from documents other than
// the rows' own sources:
//
//   - tables of peaks for MFU: mosaicml/composer, callbacks/speed_monitor.py (V100 to H200, A10, T4);
//     Lightning-AI/pytorch-lightning, fabric/utilities/throughput.py; pytorch/torchtitan, tools/utils.py (A100, H100 NVL
//     and PCIe, B200, MI250X per die, MI300X, L40S); stas00/ml-engineering, compute/accelerator/README.md (A100 to
//     GB200, L40S, MI250, MI300X); citsjtu2020/LLM-Prof, hardware_spec.md (A10, A800, H800, H20 of both sizes, L20);
//     winston-zhang-orz/gpu-specs, specs.md (A100, A10, L4, L40S, H100 PCIe, V100, T4);
//   - copies of data sheets: atineoSE/coding-model-seeks-gpu (GH200: 4 and 4.9 TB/s; RTX 6000 Ada: 1457.0;
//     RTX PRO 6000 Workstation: 4000 AI TOPS, 125 TFLOP/s); NVIDIA's table of GB200 NVL72 and HGX B200 (75 and 80 TFLOP/s
//     fp32, 180 GB at 7.7 TB/s, 186 GB at 8 TB/s); the HGX page (HGX B300: 144 and 108 PFLOP/s fp4); MLPerf's system
//     name B300-SXM-270GB; Verda, "GB300 NVL72 architecture" (270 and 279 GB, 7.7 and 8 TB/s, int8 150 and 165 TOP/s);
//     NVIDIA's Product Brief SP-12355 (RTX PRO 6000 Server: boost of 2,430 MHz) and product page (tf32 234 TFLOP/s);
//   - pytorch/ao pull request 4002: the driver names 7,680 bits at 3,996 MHz for the memory of a B200, 7.67 TB/s;
//   - Tom's Hardware on H20, L20 and L2, and TechPowerUp's figures of the L20 as topcpu.net and technical.city copy them;
//   - limits that nvidia-smi prints in public logs: H20 and H20-3e 500 W, L20 350 W, L2 72 W, B200 1000 W, GB200 1200 W,
//     B300 1100 W, GB300 1400 W, H800 700 W, A800 400 W, RTX PRO 6000 Server 600 W and Max-Q 300 W;
//   - NVIDIA's AI TOPS of GeForce cards (sparse int8, from RTX 50 on sparse fp4), and TechPowerUp's clocks and memory of
//     them, of both TITANs and of the GB10;
//   - Wccftech on Hot Chips 2025: MI350X 1000 W at 2.2 GHz, MI355X 1400 W at 2.4 GHz.
func TestRowsAgreeWithDataSheets(t *testing.T) {
	sheets := map[string]struct {
		gb, bandwidth, fp32 float64
		precision           string
		rate, sparse        float64
		watts               float64
	}{
		"P100 SXM2 16GB":        {16, 732, 10.6, "fp16", 21.2, 1, 300},
		"P100 PCIe 16GB":        {16, 732, 9.3, "fp16", 18.7, 1, 250},
		"P100 PCIe 12GB":        {12, 549, 9.3, "fp16", 18.7, 1, 250},
		"P4":                    {8, 192, 5.5, "int8", 22, 1, 75},
		"P40":                   {24, 346, 12, "int8", 47, 1, 250},
		"V100 SXM2 16GB":        {16, 900, 15.7, "fp16", 125, 1, 300},
		"V100 SXM2 32GB":        {32, 900, 15.7, "fp16", 125, 1, 300},
		"V100 DGX Station 16GB": {16, 900, 15.7, "fp16", 125, 1, 300},
		"V100 DGX Station 32GB": {32, 900, 15.7, "fp16", 125, 1, 300},
		"V100 PCIe 16GB":        {16, 900, 14, "fp16", 112, 1, 250},
		"V100 PCIe 32GB":        {32, 900, 14, "fp16", 112, 1, 250},
		"V100S PCIe 32GB":       {32, 1134, 16.4, "fp16", 130, 1, 250},
		"T4":                    {16, 320, 8.1, "int8", 130, 1, 70},
		"A100 SXM4 40GB":        {40, 1555, 19.5, "bf16", 624, 2, 400},
		"A100 SXM4 80GB":        {80, 2039, 19.5, "bf16", 624, 2, 400},
		"A100 PCIe 40GB":        {40, 1555, 19.5, "tf32", 312, 2, 250},
		"A100 PCIe 80GB":        {80, 1935, 19.5, "int8", 1248, 2, 300},
		"A2":                    {16, 200, 4.5, "fp16", 36, 2, 60},
		"A10":                   {24, 600, 31.2, "bf16", 250, 2, 150},
		"A10G":                  {24, 600, 35, "fp16", 70, 1, 300},
		"A16":                   {16, 200, 4.5, "fp16", 35.9, 2, 62.5},
		"A30":                   {24, 933, 10.3, "bf16", 330, 2, 165},
		"A40":                   {48, 696, 37.4, "fp16", 299.4, 2, 300},
		"L4":                    {24, 300, 30.3, "fp8", 485, 2, 72},
		"L40":                   {48, 864, 90.5, "bf16", 362.1, 2, 300},
		"L40S":                  {48, 864, 91.6, "fp8", 1466, 2, 350},
		"H100 SXM5 80GB":        {80, 3350, 67, "bf16", 1979, 2, 700},
		"H100 PCIe 80GB":        {80, 2000, 51, "fp8", 3026, 2, 350},
		"H100 NVL":              {94, 3900, 60, "bf16", 1671, 2, 400},
		"H200 SXM":              {141, 4800, 67, "fp8", 3958, 2, 700},
		"H200 NVL":              {141, 4800, 60, "fp8", 3341, 2, 600},
		"GH200 96GB":            {96, 4000, 67, "bf16", 1979, 2, 0},
		"GH200 144GB":           {144, 4900, 67, "bf16", 1979, 2, 0},
		"A800 SXM4 80GB":        {80, 2039, 19.5, "bf16", 624, 2, 400},
		"A800 PCIe 80GB":        {80, 1935, 19.5, "bf16", 624, 2, 300},
		"H800 SXM5 80GB":        {80, 3350, 67, "bf16", 1979, 2, 700},
		"H800 PCIe 80GB":        {80, 2000, 51, "bf16", 1513, 2, 350},
		"H20 96GB":              {96, 4000, 44, "fp8", 296, 1, 500},
		"H20 141GB":             {141, 4800, 44, "bf16", 148, 1, 500},
		"L20":                   {48, 864, 59.8, "bf16", 119.5, 1, 350},
		"L2":                    {24, 300, 24.1, "fp8", 193, 1, 72},
		"B200":                  {180, 7672, 75, "fp4", 18000, 2, 1000},
		"GB200":                 {186, 8000, 80, "fp8", 10000, 2, 1200},
		"B300":                  {270, 7700, 75, "fp4", 108000. / 8, 1, 1100},
		"GB300":                 {279, 8000, 80, "fp4", 15000, 1, 1400},
		"Quadro RTX 6000":       {24, 672, 16.3, "fp16", 130.5, 1, 260},
		"RTX A4000":             {16, 448, 19.2, "fp16", 153.4, 2, 140},
		"RTX A5000":             {24, 768, 27.8, "fp16", 222.2, 2, 230},
		"RTX A6000":             {48, 768, 38.7, "fp16", 309.7, 2, 300},
		"RTX 6000 Ada":          {48, 960, 91.1, "fp8", 1457, 2, 300},
		"RTX 5000 Ada":          {32, 576, 65.3, "fp8", 1044.4, 2, 250},
		"RTX 4500 Ada":          {24, 432, 39.6, "fp8", 634, 2, 210},

		"RTX PRO 6000 Blackwell Workstation": {96, 1792, 125, "fp4", 4000, 2, 600},
		"RTX PRO 6000 Blackwell Max-Q":       {96, 1792, 110, "fp4", 3511, 2, 300},
		"RTX PRO 6000 Blackwell Server":      {96, 1597, 120, "tf32", 234, 1, 600},
		"RTX PRO 5000 Blackwell 48GB":        {48, 1344, 65, "fp4", 2064, 2, 300},

		"GB10":    {128, 273, 31, "fp4", 1000, 2, 140},
		"TITAN V": {12, 653, 15, "fp16", 110, 1, 250},

		"TITAN RTX":                 {24, 672, 16.3, "fp16", 130, 1, 280},
		"GeForce RTX 3060 12GB":     {12, 360, 12.7, "int8", 204, 2, 170},
		"GeForce RTX 3070":          {8, 448, 20.3, "fp16", 163, 2, 220},
		"GeForce RTX 4060":          {8, 272, 15.1, "int8", 242, 2, 115},
		"GeForce RTX 4070":          {12, 504, 29.1, "int8", 466, 2, 200},
		"GeForce RTX 5060 Ti 16GB":  {16, 448, 23.7, "fp4", 759, 2, 180},
		"GeForce RTX 2080 Ti":       {11, 616, 13.4, "fp16", 107.6, 1, 250},
		"GeForce RTX 3080 10GB":     {10, 760, 29.8, "fp16", 238, 2, 320},
		"GeForce RTX 3090":          {24, 936, 35.6, "fp16", 285, 2, 350},
		"GeForce RTX 4070 Ti SUPER": {16, 672, 44, "int8", 706, 2, 285},
		"GeForce RTX 4080":          {16, 717, 48.7, "fp8", 780, 2, 320},
		"GeForce RTX 4080 SUPER":    {16, 736, 52, "int8", 836, 2, 320},
		"GeForce RTX 4090":          {24, 1008, 82.6, "fp8", 1321, 2, 450},
		"GeForce RTX 5070":          {12, 672, 31, "fp4", 988, 2, 250},
		"GeForce RTX 5070 Ti":       {16, 896, 44, "fp4", 1406, 2, 300},
		"GeForce RTX 5080":          {16, 960, 56, "fp4", 1801, 2, 360},
		"GeForce RTX 5090":          {32, 1792, 105, "fp4", 3352, 2, 575},

		"Instinct MI100": {32, 1229, 46.1, "fp16", 184.6, 1, 300},
		"Instinct MI210": {64, 1638, 45.3, "bf16", 181, 1, 300},
		// An MI250 or MI250X module is two devices.
		"Instinct MI250 (one die)":  {64, 1638, 45.3, "fp16", 181, 1, 280},
		"Instinct MI250X (one die)": {64, 1638, 47.9, "fp16", 191.5, 1, 280},
		"Instinct MI300A":           {128, 5300, 122.6, "fp8", 3922.3, 2, 550},
		"Instinct MI300X":           {192, 5300, 163.4, "fp8", 5229.8, 2, 750},
		"Instinct MI325X":           {256, 6000, 163.4, "fp16", 2614.9, 2, 1000},
		"Instinct MI350X":           {288, 8000, 144.2, "fp4", 9200, 1, 1000},
		"Instinct MI355X":           {288, 8000, 157.3, "fp16", 5033.2, 2, 1400},
	}
	for _, d := range All() {
		s, ok := sheets[d.Name]
		if !ok {
			t.Errorf("%s has no second opinion", d.Name)
			continue
		}
		delete(sheets, d.Name)
		for _, x := range []struct {
			what      string
			got, want float64
		}{
			{"memory", d.MemorySize, s.gb * 1e9},
			{"memory bandwidth", d.MemoryBandwidth, s.bandwidth * 1e9},
			{"fp32", d.FLOPs.FP32, s.fp32 * 1e12},
			{s.precision, d.FLOPs.Of(s.precision), s.rate / s.sparse * 1e12},
			{"power", d.Power, s.watts},
		} {
			if !near(x.got, x.want, 0.021) { // sheets round 2,039 GB/s to 2 TB/s
				t.Errorf("%s: %s is %g, the data sheet says %g", d.Name, x.what, x.got, x.want)
			}
		}
	}
	for name := range sheets {
		t.Errorf("no row for %s", name)
	}
}
