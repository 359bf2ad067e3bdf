// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// operator returns an operator's event, with its recorded inputs.
func operator(name string, at, dur int64, args string) string {
	return `{"ph":"X","cat":"cpu_op","name":"` + name + `","pid":9,"tid":9,"ts":` + strconv.FormatInt(at, 10) +
		`,"dur":` + strconv.FormatInt(dur, 10) + `,"args":{` + args + `}}`
}

const (
	// ResNet's first layer: 224 × 224 × 3, 64 kernels of 7 × 7, stride 2, padding 3.
	firstLayer = `"Input type":["float","float","","ScalarList","ScalarList","ScalarList","Scalar","ScalarList","Scalar"],` +
		`"Input Dims":[[1,3,224,224],[64,3,7,7],[],[],[],[],[],[],[]],"Concrete Inputs":["","","","[2, 2]","[3, 3]","[1, 1]","False","[0, 0]","1"]`
	firstLayerFLOPs = 2.0 * 112 * 112 * 64 * 3 * 7 * 7
	heads           = `"Input Dims":[[2,8,100,64],[2,8,100,64],[2,8,100,64],[],[],[],[]],"Input type":["c10::Half","c10::Half","c10::Half"]`
	gradients       = `"Input Dims":[[2,8,100,64],[2,8,100,64],[2,8,100,64],[2,8,100,64],[],[],[],[],[],[],[],[]],"Input type":["c10::Half","c10::Half","c10::Half","c10::Half"]`
)

// cuBLAS names the engine, which the inputs' type does not state.
func TestKernelsNameTF32(t *testing.T) {
	for kernel, want := range map[string]string{
		"cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align1": "tf32",
		"ampere_sgemm_128x64_nn":                               "fp32",
	} {
		b, _ := convert(t, "["+operator("aten::mm", 0, 100, `"Input type":["float","float"],"Input Dims":[[64,128],[128,32]]`)+
			","+gpu(1, 30, 100, 200, 7, kernel, "")+"]", Options{Detail: DetailKernels})
		assert.Equal(t, want, find(t, b, kernel).Attributes().AsRaw()["gpu.flop.precision"])
	}
}

func TestInputsGiveFLOPs(t *testing.T) {
	for name, c := range map[string]struct {
		op, args  string
		flops     any
		precision any
	}{
		"product": {
			"aten::mm", `"Input type":["c10::BFloat16","c10::BFloat16"],"Input Dims":[[64,128],[128,32]]`,
			2.0 * 64 * 128 * 32, "bf16",
		},
		"older key":       {"aten::mm", `"Input dims":[[64,128],[128,32]]`, 2.0 * 64 * 128 * 32, nil},
		"recorded":        {"aten::mm", `"flops":7,"Input Dims":[[64,128],[128,32]]`, 7.0, nil},
		"recorded, other": {"aten::mul", `"flops":7`, 7.0, nil},
		"bias": {
			"aten::addmm",
			`"Input type":["float","c10::Half","c10::Half"],"Input Dims":[[32],[64,128],[128,32],[],[]]`, 2.0*64*128*32 + 64*32,
			"fp16",
		},
		"by Inductor": {"triton_poi_fused_add_0", `"kernel_flop":7`, 7.0, nil},
		"batched": {
			"aten::bmm", `"Input type":["double","double"],"Input Dims":[[8,64,128],[8,128,32]]`,
			2.0 * 8 * 64 * 128 * 32, "fp64",
		},
		"batched and bias": {
			"aten::baddbmm", `"Input Dims":[[8,64,32],[8,64,128],[8,128,32]]`, 2.0*8*64*128*32 + 8*64*32,
			nil,
		},
		"8 bits": {
			"aten::_scaled_mm",
			`"Input type":["c10::Float8_e4m3fn","c10::Float8_e4m3fn"],"Input Dims":[[64,128],[128,32]]`, 2.0 * 64 * 128 * 32,
			"fp8",
		},
		"vectors":        {"aten::dot", `"Input Dims":[[128],[128]]`, 2.0 * 128, nil},
		"matrix, vector": {"aten::matmul", `"Input Dims":[[64,128],[128]]`, 2.0 * 64 * 128, nil},
		"broadcast":      {"aten::matmul", `"Input Dims":[[5,1,64,128],[3,128,32]]`, 2.0 * 5 * 3 * 64 * 128 * 32, nil},
		"not broadcast":  {"aten::matmul", `"Input Dims":[[5,2,64,128],[3,128,32]]`, nil, nil},
		"mismatch":       {"aten::mm", `"Input Dims":[[64,128],[64,32]]`, nil, nil},
		"no shapes":      {"aten::mm", `"External id":4`, nil, nil},
		"linear": {
			"aten::linear", `"Input type":["float","float"],"Input Dims":[[4,64,128],[32,128],[32]]`,
			2.0*4*64*128*32 + 4*64*32, "fp32",
		},
		"elementwise": {"aten::relu", `"Input type":["float"],"Input Dims":[[64,128]]`, 64.0 * 128, "fp32"},
		"not known":   {"aten::nonzero", `"Input type":["float"],"Input Dims":[[64,128]]`, nil, nil},
		"einsum": {
			"aten::einsum", `"Input type":["","TensorList",""],"Input Dims":[[],[[64,128],[128,32]],[]]`,
			nil, nil,
		},
		"too large":   {"aten::linear", `"Input Dims":[[1000000000,1000000000,1000000000,5],[7,5]]`, nil, nil},
		"broken":      {"aten::mm", `"Input type":"x","Input Dims":[["a"],{}]`, nil, nil},
		"convolution": {"aten::convolution", firstLayer, firstLayerFLOPs, "fp32"},
		"no values":   {"aten::convolution", `"Input Dims":[[1,3,224,224],[64,3,7,7],[],[],[],[],[],[],[]]`, nil, nil},
		"one stride for all": {
			"aten::convolution",
			`"Input Dims":[[1,3,224,224],[64,3,7,7],[]],"Concrete Inputs":["","","","[2]","[3]","[1]","False","[0]","1"]`,
			firstLayerFLOPs, nil,
		},
		// Each input position meets each kernel position: 2 × 16² positions × 8 × 4 channels × 3².
		"transposed convolution": {
			"aten::convolution",
			`"Input Dims":[[2,8,16,16],[8,4,3,3],[]],"Concrete Inputs":["","","","[2, 2]","[1, 1]","[1, 1]","True","[1, 1]","1"]`,
			2.0 * 2 * 16 * 16 * 8 * 4 * 3 * 3, nil,
		},
		"backward of a convolution": {
			"aten::convolution_backward", `"Input Dims":[[1,64,112,112],[1,3,224,224],[64,3,7,7],[],[],[],[],[],[],[],[]],` +
				`"Concrete Inputs":["","","","[0]","[2, 2]","[3, 3]","[1, 1]","False","[0, 0]","1","[True, True, False]"]`,
			2 * firstLayerFLOPs, nil,
		},
		"backward without the input's": {
			"aten::convolution_backward", `"Input Dims":[[1,64,112,112],[1,3,224,224],[64,3,7,7],[],[],[],[],[],[],[],[]],` +
				`"Concrete Inputs":["","","","[0]","[2, 2]","[3, 3]","[1, 1]","False","[0, 0]","1","[False, True, False]"]`,
			firstLayerFLOPs, nil,
		},
		"attention": {
			"aten::_scaled_dot_product_flash_attention",
			heads + `,"Concrete Inputs":["","","","0.","False","False","0.125"]`, 4.0 * 2 * 8 * 100 * 100 * 64, "fp16",
		},
		"causal attention": {
			"aten::_scaled_dot_product_flash_attention",
			heads + `,"Concrete Inputs":["","","","0.","True","False","0.125"]`, 4.0 * 2 * 8 * 5050 * 64, "fp16",
		},
		"efficient attention": {
			"aten::_scaled_dot_product_efficient_attention",
			heads + `,"Concrete Inputs":["","","","","False","0.","True",""]`, 4.0 * 2 * 8 * 5050 * 64, "fp16",
		},
		"causal or not": {"aten::_scaled_dot_product_flash_attention", heads, nil, nil},
		"backward of attention": {
			"aten::_scaled_dot_product_flash_attention_backward",
			gradients + `,"Concrete Inputs":["","","","","","","","","100","100","0.","False","","","0.125"]`,
			10.0 * 2 * 8 * 100 * 100 * 64, "fp16",
		},
		"causal, not square": {
			"aten::_scaled_dot_product_flash_attention",
			`"Input Dims":[[1,1,5,64],[1,1,9,64],[1,1,9,64]],"Concrete Inputs":["","","","0.","True"]`, nil, nil,
		},
		"chosen later": {
			"aten::scaled_dot_product_attention",
			heads + `,"Concrete Inputs":["","","","","0.","False","",""]`, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := convert(t, "["+operator(c.op, 1, 2, c.args)+"]", Options{Detail: DetailOperators})
			a := find(t, b, c.op).Attributes().AsRaw()
			assert.Equal(t, c.flops, a["gpu.flop.count"])
			assert.Equal(t, c.precision, a["gpu.flop.precision"])
		})
	}
}

func TestShapesAreWrittenWhereWanted(t *testing.T) {
	text := "[" + operator("aten::relu", 1, 2, `"Input type":["c10::BFloat16","Scalar"],"Input Dims":[[64,128],[]]`) + "]"
	b, _ := convert(t, text, Options{Detail: DetailOperators, Shapes: true})
	assert.Equal(t, []any{"bf16[64,128]"}, find(t, b, "aten::relu").Attributes().AsRaw()["gpu.operation.shapes"])
	b, _ = convert(t, text, Options{Detail: DetailOperators})
	assert.NotContains(t, find(t, b, "aten::relu").Attributes().AsRaw(), "gpu.operation.shapes")
}

func TestStepsSumTheFLOPsOfDeviceWork(t *testing.T) {
	b, _ := convert(t, `[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+
		operator("aten::linear", 10, 80, `"Input type":["c10::Half","c10::Half"],"Input Dims":[[64,128],[32,128]]`)+","+
		operator("aten::addmm", 20, 60,
			`"Input type":["c10::Half","c10::Half","c10::Half"],"Input Dims":[[32],[64,128],[128,32]]`)+","+
		gpu(1, 30, 100, 200, 7, "gemm", "")+","+gpu(2, 40, 200, 250, 7, "splitk", "")+","+ // two kernels of one product
		operator("aten::mm", 300, 50, `"Input Dims":[[9,9],[9,9]]`)+","+ // on the host: no kernel
		operator("aten::relu", 400, 50, `"Input Dims":[[9,9]]`)+","+gpu(3, 410, 420, 470, 7, "relu", "")+","+
		// communication, then the product
		operator("aten::mm", 490, 30, `"Input type":["c10::Half","c10::Half"],"Input Dims":[[7,7],[7,7]]`)+","+
		gpu(5, 505, 900, 950, 7, "gemm", "")+","+
		gpu(4, 500, 510, 900, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", "")+"]", Options{Detail: DetailSteps})
	for _, span := range []string{"ProfilerStep#4", "GPU 0"} {
		a := attrs(t, b, span)
		assert.Equal(t, 2.0*64*128*32+2.0*7*7*7, a["gpu.flop.count"], "what calls another counts once")
		assert.Equal(t, "fp16", a["gpu.flop.precision"])
		assert.Equal(t, 0.8, a["gpu.flop.coverage"], "200 of 250 µs, the collective omitted")
	}
	b, _ = convert(t, "["+step(1, 1000)+"]", Options{})
	assert.NotContains(t, attrs(t, b, "ProfilerStep#1"), "gpu.flop.count", "unknown is absent")
	assert.NotContains(t, attrs(t, b, "ProfilerStep#1"), "gpu.flop.coverage")
}

// TestRecordedModelCountsEqualTheirArchitecture compares FLOPs with the published architectures of
// the models.
func TestRecordedModelCountsEqualTheirArchitecture(t *testing.T) {
	for _, c := range []struct {
		file, step string
		flops      float64
	}{
		// BERT small: 4 layers of width 512, 8 heads of 64, 2,048 between, 30,522 words; 141
		// tokens.
		{"h100/gaunernst_bert-small-uncased__1016001.json.gz", "ProfilerStep#6", bertSmall},
		{"mi300/gaunernst_bert-small-uncased__1016001.json.gz", "ProfilerStep#6", bertSmall},
		// Qwen1.5 0.5B without its head: 24 layers of width 1,024, 16 heads of 64, causal, 2,816
		// between and gated; 16 texts of 559 tokens; and one outer product for the rotary embedding
		// in single precision.
		{
			"h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", "ProfilerStep#6",
			2*16*559*24*(4*1024*1024+3*1024*2816) + 24*4*16*16*(559*560/2)*64 + 2*32*559,
		},
	} {
		b, _ := read(t, recorded.Path(t, "kineto", "tracelens", c.file), Options{Detail: DetailSteps})
		a := attrs(t, b, c.step)
		// Biases, normalizations, activations and additions add 0.14 and 0.23 %.
		assert.InEpsilon(t, c.flops, a["gpu.flop.count"], 0.003, c.file)
		assert.Greater(t, a["gpu.flop.count"], c.flops, c.file)
		assert.Equal(t, "bf16", a["gpu.flop.precision"])
	}
}

const bertSmall = 2*141*(4*(4*512*512+2*512*2048)+512*512+512*30522) + 4*4*8*141*141*64
