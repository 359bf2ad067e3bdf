// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
	for _, name := range []string{"wait for requests", "poll_queries", "AcceptConnections", "recv_requests"} {
		assert.True(t, awaits(name), name)
	}
	for _, name := range []string{"## Request wait() ##", "wait", "process requests", "wait_for_batch", "aten::poll"} {
		assert.False(t, awaits(name), name)
	}
}
