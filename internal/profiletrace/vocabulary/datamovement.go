// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import (
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Movers are operators of PyTorch that move bytes and compute nothing: they launch a copy, a cast
// or a fill. Lookups by an index are not included, because selecting rows is their purpose.
var Movers = map[string]timeline.Move{
	"aten::contiguous": timeline.MovesLayout, "aten::reshape": timeline.MovesLayout, "aten::flatten": timeline.MovesLayout,
	"aten::_reshape_copy": timeline.MovesLayout, "aten::pixel_shuffle": timeline.MovesLayout,
	"aten::channel_shuffle": timeline.MovesLayout, "aten::roll": timeline.MovesLayout, "aten::flip": timeline.MovesLayout,
	"aten::permute_copy": timeline.MovesLayout, "aten::transpose_copy": timeline.MovesLayout,
	"aten::to": timeline.MovesType, "aten::_to_copy": timeline.MovesType, "aten::type_as": timeline.MovesType,
	"aten::copy_": timeline.MovesCopy, "aten::clone": timeline.MovesCopy, "aten::_foreach_copy_": timeline.MovesCopy,
	"aten::repeat": timeline.MovesCopy, "aten::tile": timeline.MovesCopy, "aten::expand_copy": timeline.MovesCopy,
	"aten::slice_copy": timeline.MovesCopy, "aten::narrow_copy": timeline.MovesCopy,
	"aten::split_with_sizes_copy": timeline.MovesCopy, "aten::view_copy": timeline.MovesCopy,
	"aten::cat": timeline.MovesJoin, "aten::_cat": timeline.MovesJoin, "aten::concat": timeline.MovesJoin,
	"aten::concatenate": timeline.MovesJoin, "aten::stack": timeline.MovesJoin, "aten::hstack": timeline.MovesJoin,
	"aten::vstack": timeline.MovesJoin, "aten::constant_pad_nd": timeline.MovesJoin, "aten::pad": timeline.MovesJoin,
	"aten::fill_": timeline.MovesFill, "aten::zero_": timeline.MovesFill, "aten::zeros": timeline.MovesFill,
	"aten::zeros_like": timeline.MovesFill, "aten::new_zeros": timeline.MovesFill, "aten::ones": timeline.MovesFill,
	"aten::ones_like": timeline.MovesFill, "aten::new_ones": timeline.MovesFill, "aten::full": timeline.MovesFill,
	"aten::full_like": timeline.MovesFill, "aten::new_full": timeline.MovesFill,
	"aten::_foreach_zero_": timeline.MovesFill,
}

// RoleOf returns the possible role of a kernel in attention that is computed in parts. Plain
// products, selections and fused attention end the search: a router's softmax between the products
// of two experts is not attention.
func RoleOf(operator, kernel string) timeline.Role {
	switch {
	case operator == "aten::bmm" || operator == "aten::baddbmm":
		return timeline.RoleProduct
	case strings.Contains(operator, "softmax"), operator == "" && containsFold(kernel, "softmax"):
		return timeline.RoleSoftmax
	case slices.Contains(endsAttention, operator), ContainsAny(operator, fusedAttention),
		operator == "" && ContainsAny(kernel, fusedAttention):
		return timeline.RoleEnds
	}
	return timeline.RoleOther
}

// endsAttention are operators that are never between the two products of attention, fusedAttention
// parts of the names of operators and kernels that compute all of it.
var (
	endsAttention = []string{
		"aten::mm", "aten::addmm", "aten::linear", "aten::_grouped_mm", "aten::topk", "aten::sort", "aten::argsort",
		"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_add_", "aten::index_select",
		"aten::nonzero", "aten::histc", "aten::bincount",
	}
	fusedAttention = []string{
		"flash_attn", "flash_attention", "FlashAttn", "efficient_attention", "fmha", "cudnn_attention",
	}
)

// functors are parts of the names of PyTorch's kernels for elementwise operators and for lists of
// tensors by which these only copy, cast or fill.
var functors = []struct {
	part string
	move timeline.Move
}{
	{"direct_copy_kernel_cuda", timeline.MovesCopy},
	{"copy_device_to_device", timeline.MovesCopy},
	{"copy_kernel_cuda", timeline.MovesType}, // float16_copy_kernel_cuda, bfloat16tofloat32_copy_kernel_cuda …
	{"CopyFunctor<", timeline.MovesCopy},
	{"FillFunctor<", timeline.MovesFill},
}

// MoveOf returns what kind of bytes a kernel moves by its name alone: by PyTorch's functors,
// otherwise if the name consists of words for moving and neutral words (nchwToNhwcKernel of cuDNN,
// batched_transpose_32x32 of MIOpen, CatArrayBatchedCopy of PyTorch, triton_poi_fused__to_copy_0 of
// Inductor, wrapped_transpose of XLA, copyVectorizedKernel of TensorRT). Any other word may mean
// computation, and so may casts, joins and fills at the end of a fusion of XLA, which is named for
// its last operators (loop_convert_fusion).
func MoveOf(kernel string) timeline.Move {
	for _, f := range functors {
		if strings.Contains(kernel, f.part) {
			return f.move
		}
	}
	move := timeline.MovesNothing
	list := slices.Collect(words(ShortName(kernel)))
	for i, w := range list {
		m, known := moveWords[w]
		if !known {
			return timeline.MovesNothing
		}
		if w == "copy" && i > 0 && list[i-1] == "to" && slices.Contains(list, "triton") {
			m = timeline.MovesType // aten::_to_copy
		}
		if m != timeline.MovesNothing && (move == timeline.MovesNothing || m < move) {
			move = m
		}
	}
	if move != timeline.MovesLayout && move != timeline.MovesCopy && slices.Contains(list, "fusion") {
		return timeline.MovesNothing
	}
	return move
}

// moveWords are the words in names of kernels that move bytes; MovesNothing marks neutral words.
var moveWords = func() map[string]timeline.Move {
	words := map[string]timeline.Move{}
	for m, list := range map[timeline.Move]string{
		timeline.MovesLayout: "transpose transposed permute permutation permuted nchw nhwc ncdhw ndhwc cnhw nchwc chwn " +
			"reformat reorder layout",
		timeline.MovesType: "cast convert",
		timeline.MovesCopy: "copy clone contiguous memcpy",
		timeline.MovesJoin: "cat concat concatenate pad padding",
		timeline.MovesFill: "fill memset",
		timeline.MovesNothing: "kernel cuda hip gpu device batched array vectorized packed pack tiled tile tiles tensor " +
			"generic simple op ops to from and in out with of by no using half float double bfloat bf fp int uint f b d x v " +
			"kd dim dims dimension aligned alignment contig read write ediv edge opt impl triton poi fused view wrapped amd " +
			"rocclr buffer sub strided unsafe expand unsqueeze squeeze slice select reshape split sizes chunk list swap " +
			"unrolled folded async loop input fusion",
	} {
		for w := range strings.FieldsSeq(list) {
			words[w] = m
		}
	}
	return words
}()
