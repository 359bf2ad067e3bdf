# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A real vLLM on a CPU with a tiny generated model, and a real Collector, whose path is OTELGPU_COLLECTOR."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

COLLECTOR = os.environ.get("OTELGPU_COLLECTOR")
SETTLE = 15


def address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % s.getsockname()[1]


def make_model(folder):
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    words = ["<unk>", "<s>", "</s>"] + ["w%d" % i for i in range(997)]
    t = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=t, unk_token="<unk>", bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=2048)).save_pretrained(folder)


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def eventually(f, process, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, "the process has ended"
        try:
            if f():
                return
        except OSError:
            pass
        time.sleep(0.5)
    pytest.fail("still not so after %d s" % seconds)


def totals(page):
    out = {}
    for name, value in re.findall(r"^([\w:]+)(?:\{.*\})? (\S+)$", page, re.M):
        out[name] = out.get(name, 0) + float(value)
    return out


def test_a_real_vllm_and_the_pipeline_agree(tmp_path):
    if not COLLECTOR:
        pytest.skip("OTELGPU_COLLECTOR names no Collector")
    pytest.importorskip("vllm")
    model = str(tmp_path / "tiny")
    make_model(model)
    otlp, metrics, vllm = address(), address(), address()
    collector_log, server_log = open(tmp_path / "collector.log", "w"), open(tmp_path / "vllm.log", "w")
    collector = subprocess.Popen([COLLECTOR, "--config", "llm"], stdout=collector_log, stderr=collector_log, env={
        **os.environ, "OTELGPU_SOURCE": "simulated", "OTELGPU_OTLP_GRPC": otlp, "OTELGPU_OTLP_HTTP": address(),
        "OTELGPU_METRICS": metrics, "OTELGPU_PAGE": address(), "OTELGPU_HEALTH": address(),
        "OTELGPU_TELEMETRY_PORT": address().split(":")[1], "OTELGPU_SERVER_METRICS": "http://%s/metrics" % vllm,
        "OTELGPU_SETTLE": "%ds" % SETTLE, "OTELGPU_MAX_WAIT": "%ds" % (SETTLE + 5)})
    server = subprocess.Popen([
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1",
        "--port", vllm.split(":")[1], "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8",
        "--enforce-eager", "--otlp-traces-endpoint", "http://" + otlp, "--collect-detailed-traces", "all",
    ], stdout=server_log, stderr=server_log, env={
        **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OTEL_SERVICE_NAME": "vllm", "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "true"})

    def ask(prompt, n=1, tokens=40, timeout=120.0, headers=()):
        body = json.dumps({"model": model, "prompt": prompt, "n": n, "max_tokens": tokens, "ignore_eos": True})
        request = urllib.request.Request("http://%s/v1/completions" % vllm, body.encode(),
                                         {"Content-Type": "application/json", **dict(headers)})
        try:
            urllib.request.urlopen(request, timeout=timeout).read()
        except TimeoutError:
            assert timeout < 1

    def together(calls):
        threads = [threading.Thread(target=ask, args=c) for c in calls]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    try:
        eventually(lambda: get("http://%s/health" % vllm) is not None, server, 1200)
        before = totals(get("http://%s/metrics" % vllm))
        long = " ".join("w%d" % (i % 900) for i in range(700))
        # One prompt, three completions, a long prompt twice (the second hits the prefix cache), four prompts.
        together([("w1 w2 w3",), ("w4 w5", 3), (long, 1, 60), (long, 1, 60), (["w1 w2", "w3 w4", "w5", "w6"],)] * 3)
        page = "http://%s/metrics" % vllm
        eventually(lambda: totals(get(page))["vllm:num_requests_running"] == 0, server, 60)
        after = totals(get(page))
        # Neither an aborted request nor an unsampled one sends a span.
        together([(long, 1, 300, 0.3)] * 4 + [("w9", 1, 30, 120.0, (("traceparent", "00-%032x-%016x-00" % (7, 9)),))])
        theirs = {k: v - before.get(k, 0) for k, v in after.items()}
        want = theirs["vllm:request_success_total"]
        assert want == 30
        assert theirs["vllm:prefix_cache_hits_total"] > 0
        eventually(lambda: totals(get("http://%s/metrics" % metrics)).get("gpu_request_items_count") == want, collector,
                   120)
        time.sleep(SETTLE)  # further requests would have arrived by now
        ours = totals(get("http://%s/metrics" % metrics))
    finally:
        for p in (server, collector):
            p.terminate()
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        collector_log.close()
        server_log.close()
    assert ours["gpu_request_items_count"] == want
    assert ours["gpu_request_energy_joules_count"] == want
    assert ours["gpu_request_items_sum"] == theirs["vllm:request_generation_tokens_sum"]
    for name, of in {
        "queue_duration": "request_queue_time", "prefill_duration": "request_prefill_time",
        "decode_duration": "request_decode_time", "time_to_first_item": "time_to_first_token",
    }.items():
        got, expected = ours["gpu_request_%s_seconds_sum" % name], theirs["vllm:%s_seconds_sum" % of]
        print("%-20s %10.6f s, vLLM's own %10.6f s" % (name, got, expected))
        assert got == pytest.approx(expected, rel=1e-6, abs=1e-6), name
