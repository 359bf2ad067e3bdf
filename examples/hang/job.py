#!/usr/bin/env python3
# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays a training job of four ranks that hangs, goes on, is killed and starts again.

It sends spans as Megatron-LM does through NeMo Lens, and writes dumps as PyTorch's flight recorder
does, to a Collector with the pipeline `training`. It needs no GPU and no package, and runs for a
minute:

    otelcol-gpu --config training     # OTELGPU_LOG_LEVEL=info OTELGPU_SOURCE=simulated without a GPU
    python3 job.py
"""

import argparse
import json
import os
import random
import time
import urllib.request

RANKS = 4
LATE = 2  # the rank that hangs


class Job:
    """The spans of one process per rank."""

    def __init__(self, url, attempt):
        self.url, self.attempt, self.spans = url, attempt, []

    def span(self, rank, name, start, length, trace, parent="", **attributes):
        ident = f"{random.getrandbits(64) | 1:016x}"
        ns = lambda t: str(int(t * 1e9))
        self.spans.append((rank, {
            "traceId": trace, "spanId": ident, "parentSpanId": parent, "name": name, "kind": 1,
            "startTimeUnixNano": ns(start), "endTimeUnixNano": ns(start + length),
            "attributes": [{"key": k.replace("_", "."), "value": {"intValue": v}} for k, v in attributes.items()],
        }))
        return ident

    def everywhere(self, name, start, length):
        for rank in range(RANKS):
            self.span(rank, name, start, length, f"{random.getrandbits(128) | 1:032x}")

    def step(self, index, start):
        """One second; the late rank works 0.1 s longer, for which the others wait in the optimizer."""
        for rank in range(RANKS):
            trace = f"{random.getrandbits(128) | 1:032x}"
            own = 0.8 if rank == LATE else 0.7
            top = self.span(rank, "megatron.train.iteration", start, 1, trace, megatron_iteration=index)
            self.span(rank, "megatron.train.iteration.forward_backward", start, own, trace, top)
            self.span(rank, "megatron.train.iteration.optimizer", start + own, 1 - own, trace, top)

    def send(self):
        for rank in range(RANKS):
            resource = {"service.name": "megatron-lm", "nemo.lens.job_uuid": "demo-job", "service.instance.id":
                        f"{self.attempt}-rank{rank}", "dl.rank": rank, "dl.world_size": RANKS}
            body = {"resourceSpans": [{
                "resource": {"attributes": [
                    {"key": k, "value": {"intValue" if isinstance(v, int) else "stringValue": v}} for k, v in resource.items()]},
                "scopeSpans": [{"scope": {"name": "nemo.lens"}, "spans": [s for of, s in self.spans if of == rank]}],
            }]}
            request = urllib.request.Request(self.url + "/v1/traces", json.dumps(body).encode(), {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=30).read()
        self.spans = []


def dump(folder, rank, last, at):
    """Writes the flight recorder's JSON of a rank that has entered so many collectives."""
    entries = [{
        "record_id": i, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": i + 1, "p2p_seq_id": 0, "op_id": i + 1,
        "profiling_name": "nccl:all_reduce", "time_created_ns": int((at - 10 + i) * 1e9), "input_sizes": [[1024]],
        "output_sizes": [[1024]], "input_dtypes": ["Float"], "output_dtypes": ["Float"], "is_p2p": False, "timeout_ms": 600000,
        "state": "completed" if i < 10 else "started", "retired": i < 10,
        "time_discovered_started_ns": int((at - 10 + i) * 1e9), "time_discovered_completed_ns": int((at - 9.5 + i) * 1e9) if i < 10 else 0,
    } for i in range(last)]
    text = {
        "version": "2.10", "comm_lib_version": "2.30.7", "entries": entries, "nccl_comm_state": {},
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))}},
        "pg_status": {"0": {"last_enqueued_collective": str(last), "last_started_collective": str(last),
                            "last_completed_collective": "10"}},
    }
    with open(os.path.join(folder, f"rank_{rank}"), "w") as f:
        json.dump(text, f)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--otlp", default="http://127.0.0.1:4318", help="OTLP over HTTP of the Collector")
    parser.add_argument("--dumps", default="/tmp/otelgpu-dumps/demo-job", help="folder of the dumps")
    parser.add_argument("--pause", type=float, default=61, help="seconds between the hang and the rest of the job")
    args = parser.parse_args()
    os.makedirs(args.dumps, exist_ok=True)

    now = time.time() - 61 + args.pause
    job, at = Job(args.otlp, "first"), now - 700
    job.everywhere("megatron.startup", at, 60)
    at += 60
    for i in range(300):
        job.step(i, at)
        at += 1
        if i % 100 == 99:
            job.everywhere("megatron.checkpoint.exposed_save", at, 5)
            at += 5
    job.send()
    for rank in range(RANKS):
        dump(args.dumps, rank, 10 if rank == LATE else 11, at)
    print(f"step 300 hangs since {now - at:.0f} s; dumps are in {args.dumps}", flush=True)
    time.sleep(args.pause)

    at = now  # rank 2 goes on
    for i in range(300, 320):
        job.step(i, at)
        at += 1
    job.send()
    again, at = Job(args.otlp, "second"), at + 10  # the job was killed, and begins from the checkpoint
    again.everywhere("megatron.startup", at, 10)
    at += 10
    for i in range(300, 320):
        again.step(i, at)
        at += 1
    again.send()
    print("it was killed after step 319, and began again with step 300")


if __name__ == "__main__":
    main()
