// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"
	"strings"
)

// Compiles reports whether a range is compilation rather than running compiled code. A frame is
// recognized by its function, or by a module that does nothing but compile.
func Compiles(name string) bool {
	if name = strings.ToLower(name); !Contains(name, compiling...) {
		return false
	}
	words := []string{
		"compile", "compilation", "dynamo", "inductor", "autotun", "codegen", "nvrtc", "nvcc", "ptxas", "ninja",
		"build_engine", "buildengine", "build_serialized",
	}
	if path, call, frame := strings.Cut(name, "): "); frame {
		if Contains(path, compilers...) || Contains(path, "/jit/", "compiler", "cpp_ext") && strings.Contains(call, "build") {
			return true
		}
		if Contains(path, "eval_frame") { // runs what was compiled
			return false
		}
		name, words = call, append(words, "_bench")
	}
	return !Contains(name, "cache lookup") && Contains(strings.ReplaceAll(name, "compiled", ""), words...)
}

// compiling are parts of the names of all ranges that compile code, and of some others: most ranges
// have none.
var compiling = []string{
	"compil", "dynamo", "inductor", "autotun", "codegen", "nvrtc", "_bench", "cpp_ext", "/jit/", "nvcc", "ptxas",
	"ninja", "build",
	"aot_autograd", "proxy_tensor", "triton/backends",
}

// compilers are parts of the paths of modules that compile code.
var compilers = []string{
	"_dynamo/convert_frame", "_dynamo/symbolic_convert", "_inductor/graph", "_inductor/scheduler", "_inductor/codegen",
	"_inductor/async_compile", "_inductor/codecache", "_functorch/aot_autograd", "fx/experimental/proxy_tensor",
	"triton/compiler/", "triton/backends/", "triton/runtime/build", "utils/cpp_extension", "jax/_src/compiler",
}

// SavesCheckpoint reports whether a range or frame writes a checkpoint. Activation checkpointing
// saves none.
func SavesCheckpoint(name string) bool {
	if !mayWrite(name) {
		return false
	}
	name = strings.ToLower(name)
	path, call, frame := strings.Cut(name, "): ")
	if !frame {
		call = name
	}
	if strings.Contains(call, "save_for_backward") || frame && strings.Contains(path, "torch/utils/checkpoint.py") {
		return false
	}
	if Contains(call, "save", "saving", "write", "writing", "dump", "serializ") {
		return Contains(name, saving...) || Contains(call, "model", "weights", "state_dict", "optimizer", "snapshot")
	}
	return false
}

// NamesCheckpoint reports whether a range in which nothing is launched writes a checkpoint. One in
// which operators run may as well be activation checkpointing.
func NamesCheckpoint(name string) bool {
	if SavesCheckpoint(name) {
		return true
	}
	if strings.Contains(name, "): ") || strings.Contains(name, "::") {
		return false
	}
	name = strings.ToLower(name)
	return Contains(name, "checkpoint", "ckpt", "snapshot") &&
		!Contains(name, "load", "restor", "resum", "read", "activation", "gradient", "forward", "backward", "recomput")
}

// mayWrite reports whether a name has one of the words that all names of functions that write have,
// in small letters or with a capital: nearly all names have none, and need no copy.
func mayWrite(name string) bool {
	return Contains(name, "sav", "Sav", "SAV", "writ", "Writ", "WRIT", "dump", "Dump", "DUMP", "erializ")
}

// saving are parts of the names of functions that write checkpoints, and of the paths of their
// modules.
var saving = []string{
	"checkpoint", "ckpt", "torch.save", "dcp.save", "torch/serialization.py", "safetensors", "state_dict_saver",
	"save_pretrained", "save_state",
}

// WaitsForDevice reports whether a call of a device runtime waits for work on a stream, by its
// name.
func WaitsForDevice(name string) bool {
	return Contains(name, "Synchronize", "synchronize", "urQueueFinish", "urEventWait")
}

// Contains reports whether s contains any of the words.
func Contains(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(s, word) })
}
