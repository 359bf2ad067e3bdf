// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import "strings"

// Quantity is what a metric measures.
type Quantity uint8

// The quantities. From Input on they are counters.
const (
	Running  Quantity = iota // requests that run now
	Waiting                  // requests in the queue
	KVCache                  // ratio of the key-value cache that is in use
	Input                    // prompt tokens, with tokens from the cache
	Cached                   // prompt tokens from the cache
	Output                   // generated tokens
	Requests                 // requests that have ended
	Preempted
	Prefill  // s that requests spent in prefill
	Decode   // s that requests spent in decoding
	BusyTime // µs that requests took, counted when they end

	NumQuantities = int(BusyTime) + 1
)

// Server describes what the metrics of a server mean.
type Server struct {
	Name string
	// Replicas are labels of series that are added: each has its own requests.
	Replicas string
	// Shards are labels of series that repeat the same requests: the largest one is used.
	Shards string
	// Running states what the number of running requests is, and by how much it is stale.
	Running string
	// Tokens states when tokens are counted.
	Tokens string
	// Source is the public source of these statements.
	Source string
	// Recorded names the recorded or written page with which they are tested.
	Recorded string
}

// Metric is a metric of a server.
type Metric struct {
	Server   string
	Quantity Quantity
	// Label and Value select the series with this label, if they are set.
	Label, Value string
}

// shards are the labels of ranks that hold the same requests; see Server.Shards.
var shards = map[string]bool{
	"tp_rank": true, "pp_rank": true, "moe_ep_rank": true, "cp_rank": true, "attn_cp_rank": true,
}

// priority is a label of SGLang. The series in which it is empty is the total of the others.
const priority = "priority"

// Servers are the known servers.
var Servers = []Server{
	{
		"vLLM", "`engine` (data parallelism)", "none", "now, each iteration (some 10 ms)", "each iteration",
		"[vllm/v1/metrics/loggers.py](https://github.com/vllm-project/vllm/blob/main/vllm/v1/metrics/loggers.py)",
		"0.32.0, recorded",
	},
	{
		"SGLang", "`dp_rank`", "`tp_rank`, `pp_rank`, `moe_ep_rank`, `cp_rank`; `priority=\"\"` is the total",
		"now; refreshed each 40 decoding steps, frozen up to 30 s after the last request; 0 on prefill servers",
		"when a request ends, except `realtime_tokens_total`",
		"[metrics_collector.py](https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/observability/" +
			"metrics_collector.py), [#26495](https://github.com/sgl-project/sglang/issues/26495), " +
			"[#31495](https://github.com/sgl-project/sglang/issues/31495)",
		"0.5.23, written from source",
	},
	{
		"Text Generation Inference", "none", "none", "now, each batch", "when a request ends",
		"[metrics reference](https://huggingface.co/docs/text-generation-inference/reference/metrics)",
		"3, written from source",
	},
	{
		"Triton", "`model`, `version`", "none",
		"TensorRT-LLM backend: now. Others: time of requests, counted when they end; spread over their mean duration",
		"none",
		"[metrics.md](https://github.com/triton-inference-server/server/blob/main/docs/user_guide/metrics.md), " +
			"[#5927](https://github.com/triton-inference-server/server/issues/5927)",
		"written from source",
	},
	{
		"TensorRT-LLM", "none", "none", "now, each iteration", "when a request ends; none in 1.2",
		"[collector.py](https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/metrics/collector.py)",
		"written from source",
	},
	{
		"Dynamo", "`model`", "none",
		"now, with queued requests: on the front end of all workers, on a worker's port of this one",
		"on the front end: output each chunk, input when a request ends",
		"[metrics.rs](https://github.com/ai-dynamo/dynamo/blob/main/lib/llm/src/http/service/metrics.rs)",
		"1.6.1, recorded with the mocker",
	},
	{
		"llama.cpp", "none", "none", "now", "each iteration",
		"[server/README.md](https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md)", "written from source",
	},
}

// metrics are the known metrics by name, with `:` written as `_`. Where a server has two for one
// quantity, prefer names the better one.
var metrics = map[string]Metric{
	"vllm_num_requests_running":                  {Server: "vLLM", Quantity: Running},
	"vllm_num_requests_waiting":                  {Server: "vLLM", Quantity: Waiting},
	"vllm_kv_cache_usage_perc":                   {Server: "vLLM", Quantity: KVCache}, // a ratio, in spite of its name
	"vllm_gpu_cache_usage_perc":                  {Server: "vLLM", Quantity: KVCache}, // before 0.10
	"vllm_prompt_tokens_total":                   {Server: "vLLM", Quantity: Input},
	"vllm_prompt_tokens_cached_total":            {Server: "vLLM", Quantity: Cached},
	"vllm_prefix_cache_hits_total":               {Server: "vLLM", Quantity: Cached}, // before prompt_tokens_cached_total
	"vllm_generation_tokens_total":               {Server: "vLLM", Quantity: Output},
	"vllm_request_success_total":                 {Server: "vLLM", Quantity: Requests},
	"vllm_num_preemptions_total":                 {Server: "vLLM", Quantity: Preempted},
	"vllm_request_prefill_time_seconds_sum":      {Server: "vLLM", Quantity: Prefill},
	"vllm_request_decode_time_seconds_sum":       {Server: "vLLM", Quantity: Decode},
	"sglang_num_running_reqs":                    {Server: "SGLang", Quantity: Running},
	"sglang_num_queue_reqs":                      {Server: "SGLang", Quantity: Waiting},
	"sglang_token_usage":                         {Server: "SGLang", Quantity: KVCache},
	"sglang_prompt_tokens_total":                 {Server: "SGLang", Quantity: Input},
	"sglang_cached_tokens_total":                 {Server: "SGLang", Quantity: Cached},
	"sglang_generation_tokens_total":             {Server: "SGLang", Quantity: Output},
	"sglang_realtime_tokens_total":               {"SGLang", Output, "mode", "decode"},
	"sglang_num_requests_total":                  {Server: "SGLang", Quantity: Requests},
	"sglang_num_retracted_requests_total":        {Server: "SGLang", Quantity: Preempted},
	"tgi_batch_current_size":                     {Server: "Text Generation Inference", Quantity: Running},
	"tgi_queue_size":                             {Server: "Text Generation Inference", Quantity: Waiting},
	"tgi_request_input_length_sum":               {Server: "Text Generation Inference", Quantity: Input},
	"tgi_request_generated_tokens_sum":           {Server: "Text Generation Inference", Quantity: Output},
	"tgi_request_count":                          {Server: "Text Generation Inference", Quantity: Requests},
	"nv_inference_request_duration_us":           {Server: "Triton", Quantity: BusyTime},
	"nv_inference_request_success":               {Server: "Triton", Quantity: Requests},
	"nv_trt_llm_kv_cache_block_metrics":          {"Triton", KVCache, "kv_cache_block_type", "fraction"},
	"trtllm_num_requests_running":                {Server: "TensorRT-LLM", Quantity: Running},
	"trtllm_num_requests_waiting":                {Server: "TensorRT-LLM", Quantity: Waiting},
	"trtllm_kv_cache_utilization":                {Server: "TensorRT-LLM", Quantity: KVCache},
	"trtllm_prompt_tokens_total":                 {Server: "TensorRT-LLM", Quantity: Input},
	"trtllm_prompt_cached_tokens_total":          {Server: "TensorRT-LLM", Quantity: Cached},
	"trtllm_generation_tokens_total":             {Server: "TensorRT-LLM", Quantity: Output},
	"trtllm_request_success_total":               {Server: "TensorRT-LLM", Quantity: Requests},
	"trtllm_request_prefill_time_seconds_sum":    {Server: "TensorRT-LLM", Quantity: Prefill},
	"trtllm_request_decode_time_seconds_sum":     {Server: "TensorRT-LLM", Quantity: Decode},
	"dynamo_frontend_inflight_requests":          {Server: "Dynamo", Quantity: Running},
	"dynamo_frontend_queued_requests":            {Server: "Dynamo", Quantity: Waiting},
	"dynamo_frontend_input_sequence_tokens_sum":  {Server: "Dynamo", Quantity: Input},
	"dynamo_frontend_output_sequence_tokens_sum": {Server: "Dynamo", Quantity: Output},
	"dynamo_frontend_output_tokens_total":        {Server: "Dynamo", Quantity: Output},
	"dynamo_frontend_requests_total":             {Server: "Dynamo", Quantity: Requests},
	"dynamo_component_inflight_requests":         {"Dynamo", Running, "dynamo_endpoint", "generate"},
	// requests_total of a worker counts them when they begin.
	"dynamo_component_request_duration_seconds_count": {"Dynamo", Requests, "dynamo_endpoint", "generate"},
	"llamacpp_requests_processing":                    {Server: "llama.cpp", Quantity: Running},
	"llamacpp_requests_deferred":                      {Server: "llama.cpp", Quantity: Waiting},
	"llamacpp_kv_cache_usage_ratio":                   {Server: "llama.cpp", Quantity: KVCache}, // until 2025
	"llamacpp_prompt_tokens_total":                    {Server: "llama.cpp", Quantity: Input},
	"llamacpp_tokens_predicted_total":                 {Server: "llama.cpp", Quantity: Output},
	"llamacpp_prompt_seconds_total":                   {Server: "llama.cpp", Quantity: Prefill},
	"llamacpp_tokens_predicted_seconds_total":         {Server: "llama.cpp", Quantity: Decode},
}

// bySelection are metrics of one name whose series are different quantities, by a label's value.
var bySelection = map[string][]Metric{
	"nv_trt_llm_request_metrics": {
		{"Triton", Running, "request_type", "active"}, {"Triton", Waiting, "request_type", "waiting"},
	},
}

// preferred are metrics that replace the other one of their quantity and server: they count when
// the tokens are computed.
var preferred = map[string]bool{
	"sglang_realtime_tokens_total": true, "dynamo_frontend_output_tokens_total": true,
	"vllm_prompt_tokens_cached_total": true,
}

// startTime is the time at which the process of a server started, in Unix seconds.
const startTime = "process_start_time_seconds"

// normal returns a metric's name as the catalogue spells it. Ray exports the metrics of vLLM with a
// prefix, and some stores replace the colon.
func normal(name string) string {
	return strings.TrimPrefix(strings.ReplaceAll(name, ":", "_"), "ray_")
}

// metricsOf returns the metrics of a name.
func metricsOf(name string) []Metric {
	if m, ok := metrics[name]; ok {
		return []Metric{m}
	}
	return bySelection[name]
}

// Known reports whether a name is a metric of the catalogue.
func Known(name string) bool {
	name = normal(name)
	return name == startTime || metricsOf(name) != nil
}

// modelLabels are the labels that name the model.
var modelLabels = [...]string{"model_name", "model"}
