// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// inTermsOf returns a remedy in the terms of a framework. Where the file only states that XLA ran the
// program, terms of JAX are marked as such.
func inTermsOf(framework event.Framework, remedy string) string {
	if framework == event.PyTorch {
		return remedy
	}
	replaced := ofJAX.Replace(remedy)
	if framework == event.XLA && replaced != remedy {
		return "in JAX: " + replaced
	}
	return replaced
}

// ofJAX replaces what remedies name of PyTorch by what programs of JAX have for it.
var ofJAX = strings.NewReplacer(
	`CUDA graphs or torch.compile(mode="reduce-overhead")`,
	"one jax.jit around the whole step, several steps in one call (jax.lax.scan)",
	"torch.compile, or a fused kernel for the chain", "one jax.jit around the chain, or a kernel for it (Pallas)",
	" (persistent_workers=True)", "",
	"a caching allocator, buffers that are kept, no empty_cache in the loop, expandable segments",
	"memory allocated at the start (no XLA_PYTHON_CLIENT_PREALLOCATE=false, no XLA_PYTHON_CLIENT_ALLOCATOR=platform), "+
		"donated arguments (donate_argnums)",
	"expandable segments, no empty_cache in the loop", "donated arguments (donate_argnums)",
	"activation checkpointing", "rematerialization (jax.checkpoint), donated arguments (donate_argnums)",
	"where shapes change, turn benchmarking off", "keep compiled code (jax_compilation_cache_dir)",
	"(torch.distributed.checkpoint.async_save), from a copy in pinned memory,", "(orbax.checkpoint.AsyncCheckpointer),",
	"(TORCH_LOGS=recompiles names what changed; mark_dynamic)",
	"(jax_explain_cache_misses names what changed, jax_compilation_cache_dir keeps the code)",
	" (enable_cuda_sync_events)", "",
	"(model and inputs in memory_format=torch.channels_last, or neither)", "(of the model and its inputs)",
	"one autocast region around all of it so that its casts of weights are kept, fused kernels (torch.compile)",
	"one jax.jit around all of it",
	"views in place of copies (no clone, contiguous or repeat where a stride does), fused kernels (torch.compile)",
	"one jax.jit around all of it, donated arguments (donate_argnums)",
	"set_to_none=True, empty in place of zeros where all is written", "one jax.jit around all of it",
	"pinned memory (pin_memory=True) with non_blocking=True, on a separate stream",
	"jax.device_put ahead of time, fewer and larger transfers",
	"gather small tensors into one copy, from pinned memory with non_blocking=True",
	"gather small arrays into one jax.device_put, ahead of time",
	"on a separate stream", "with jax.device_put",
	", other work beside them on a second stream", "",
	"allow TF32 (torch.set_float32_matmul_precision), or mixed precision (autocast)",
	"allow TF32 (jax_default_matmul_precision), or bfloat16",
	" (schedule with wait and warmup)", " (start jax.profiler after them)",
	", or with larger buffers (nsys: --cuda-flush-interval; PyTorch: fewer steps in the schedule)", "",
	"; graphs with loops need --cuda-graph-trace=graph", "",
	"record operators with the shapes of their inputs (record_shapes=True, also of emit_nvtx)",
	"XLA's profile of a GPU states no FLOPs: jax.jit(f).lower(...).compile().cost_analysis() does",
	"record operators with the shapes of their inputs (record_shapes=True), name the device (--device)",
	"name the device (--device)", " (record_shapes=True)", "",
	"name the traces in which the graphs were captured (--captures), or profile once without graphs and compilation",
	"profile once without graphs (XLA_FLAGS=--xla_gpu_enable_command_buffer=)",
	"record stacks (with_stack=True) or annotate the program",
	"record stacks (python_tracer_level of jax.profiler.ProfileOptions) or annotate the program "+
		"(jax.profiler.TraceAnnotation)",
	"(item, cpu, nonzero, print force a wait)", "(float, numpy.asarray, print, block_until_ready force a wait)",
	"scaled_dot_product_attention with a backend that is not math (sdpa_kernel; half precision, a mask that it takes), "+
		"FlashAttention, attn_implementation", `jax.nn.dot_product_attention(implementation="cudnn"), or a kernel of Pallas`,
	"(PyTorch: ProfilerActivity.CUDA; nsys: --trace=cuda)",
	"(jax.devices() lists what JAX uses; pip install \"jax[cuda13]\" or \"jax[tpu]\")",
)
