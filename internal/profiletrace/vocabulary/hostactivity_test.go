// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

func TestLoadersAreKnownByTheirWords(t *testing.T) {
	for _, name := range []string{
		"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
		"[pl][profile][_TrainingEpochLoop].train_dataloader_next", "get_batch", "## next batch ##", "IteratorGetNext",
		"batch-generator", "data_loading", "DALIGenericIterator.__next__", "fetchBatch", "wait for data", "DataFetcher",
		"read_data", "input_pipeline", "load-data", "InputQueue.get",
		"prefetch next batch", "WebDataset.iterator", "train.data_iter", "dataloader",
		"[pl][profile][_EvaluationLoop].val_next", "[pl][profile][_EvaluationLoop].test_next",
	} {
		assert.True(t, loader(name), name)
	}
	for _, name := range []string{
		"aten::batch_norm", "batch_norm_get_stats", "get_input_embeddings", "forward", "next_token", "load_checkpoint",
		"aten::data_ptr", "DataParallel.forward", "input_layernorm", "read", "thread pool",
		"update_batch", "to_device", "decode", "get_input_ids", "copy batch to device", "generate next token batch", "",
		"é_è", "ProfilerStep#3",
	} {
		assert.False(t, loader(name), name)
	}
}

func TestWaitingForWorkFromOutsideIsKnownByItsWords(t *testing.T) {
	for _, name := range []string{
		"wait for requests", "poll_queries", "AcceptConnections", "recv_requests",
		"wait_for_request", "waiting for a client",
	} {
		assert.True(t, awaits(name), name)
	}
	for _, name := range []string{
		"## Request wait() ##", "wait", "process requests", "wait_for_batch",
		"request for wait", "wait request", "aten::poll",
	} {
		assert.False(t, awaits(name), name)
	}
}

// Triton runs all kernels within its autotuner, and measures some.
func TestFramesThatTryKernelsOutAreKnown(t *testing.T) {
	for _, name := range []string{
		"triton/testing.py(96): do_bench", "triton/runtime/autotuner.py(160): _bench",
		"torch/_inductor/runtime/benchmarking.py(180): benchmark_gpu", "flashinfer/autotuner.py(500): _profile_single_kernel",
	} {
		assert.True(t, MeaningOf(event.KindFrame, name).Tries, name)
	}
	for _, name := range []string{
		"triton/runtime/autotuner.py(186): run", "serve.py(5): run_bench", "triton/compiler/compiler.py(220): compile",
		"torch/_inductor/compile_fx.py(500): compile_fx_inner",
	} {
		assert.False(t, MeaningOf(event.KindFrame, name).Tries, name)
	}
}

func TestProgramsThatTrainAreKnownByTheirNames(t *testing.T) {
	for _, name := range []string{
		"autograd::engine::evaluate_function: MmBackward0", "Optimizer.step#AdamW.step", "train.py(88): train",
		"transformers/trainer.py(2200): _inner_training_loop", "run_epoch",
	} {
		assert.True(t, Trains(name), name)
	}
	for _, name := range []string{
		"torch/nn/modules/module.py(2842): train", "transformers/modeling_utils.py(279): from_pretrained", "constrained", "aten::mm",
	} {
		assert.False(t, Trains(name), name)
	}
}

// A frame that only waits is a wait, however long its call to the runtime was.
func TestFramesThatWaitAreWaits(t *testing.T) {
	for name, want := range map[string]timeline.Range{
		"torch/cuda/__init__.py(1040): synchronize":        timeline.CallWait,
		"api.py(3165): try_to_block":                       timeline.CallWait,
		"array.py(631): block_until_ready":                 timeline.CallWait,
		"torch/cuda/streams.py(111): synchronize":          timeline.CallWait,
		"<built-in function _cuda_synchronize>":            timeline.CallWait,
		"train.py(7): synchronize":                         timeline.RangeFrame,
		"torch/cuda/__init__.py(219): _lazy_init":          timeline.RangeFrame,
		"json/encoder.py(183): encode":                     timeline.RangeBuiltin,
		"/usr/lib/python3.12/json/encoder.py(183): encode": timeline.RangeBuiltin,
		"store.py(10): encode":                             timeline.RangeFrame,
	} {
		assert.Equal(t, want, MeaningOf(event.KindFrame, name).Class, name)
	}
}

// What saves a checkpoint is one range, whatever it calls; activation checkpointing and loading
// save none.
func TestCheckpointsAreKnownByTheirFunction(t *testing.T) {
	for name, want := range map[string]bool{
		"transformers/trainer.py(3100): _save_checkpoint":                   true,
		"torch/serialization.py(944): save":                                 true,
		"torch/distributed/checkpoint/state_dict_saver.py(180): save":       true,
		"safetensors/torch.py(260): save_file":                              true,
		"transformers/modeling_utils.py(2700): save_pretrained":             true,
		"torch/serialization.py(1000): load":                                false,
		"torch/utils/checkpoint.py(1120): save_outputs":                     false,
		"/home/saved/checkpoint_utils.py(3): compare":                       false,
		"<built-in method save_for_backward of CheckpointFunctionBackward>": false,
	} {
		assert.Equal(t, want, MeaningOf(event.KindFrame, name).Class == timeline.RangeSave, name)
	}
	for name, want := range map[string]bool{"save_checkpoint": true, "Checkpoint: saving": true, "load_checkpoint": false, "checkpoint": false} {
		assert.Equal(t, want, MeaningOf(event.KindAnnotation, name).Class == timeline.RangeSave, name)
	}
}
