# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A service with continuous batching: each decode iteration serves the running requests, and links to them with the
number of tokens of each.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python serve.py [--requests 40]

With otelcol-gpu each request's trace contains its usage record (GPU time, tokens, and energy of its share).
"""

import argparse
import asyncio
import random

import torch
from opentelemetry import context, trace

import otelgpu
from setup import start

WIDTH, VOCABULARY, MAX_BATCH = 512, 8192, 16


class Request:
    def __init__(self, prompt: int, answer: int) -> None:
        self.prompt, self.left = prompt, answer
        self.context = context.get_current()  # the request's span is current
        self.done = asyncio.get_running_loop().create_future()


class Engine:
    """One GPU and one loop: admits new requests, generates a token for each running one, and removes finished ones."""

    def __init__(self) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.body = torch.nn.Linear(WIDTH, WIDTH).to(self.device)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY).to(self.device)
        self.flops = 2.0 * sum(p.numel() for m in (self.body, self.head) for p in m.parameters())
        self.waiting: "asyncio.Queue[Request]" = asyncio.Queue()
        self.running = []

    async def run(self) -> None:
        while True:
            if not self.running:
                self.take_in(await self.waiting.get())
            while len(self.running) < MAX_BATCH and not self.waiting.empty():
                self.take_in(self.waiting.get_nowait())
            self.decode()
            await asyncio.sleep(0)

    @torch.no_grad()
    def take_in(self, r: Request) -> None:
        token = context.attach(r.context)
        try:
            with otelgpu.section("prefill", category="prefill", items=r.prompt, item_type="token",
                                 flops=self.flops * r.prompt, precision="fp32"):
                self.head(self.body(torch.randn(r.prompt, WIDTH, device=self.device)))
        finally:
            context.detach(token)
        self.running.append(r)

    @torch.no_grad()
    def decode(self) -> None:
        n = len(self.running)
        with otelgpu.section("decode", category="decode", items=n, item_type="token", flops=self.flops * n,
                             precision="fp32", batched=True, links=[(r.context, 1) for r in self.running]):
            self.head(self.body(torch.randn(n, WIDTH, device=self.device))).argmax(-1).tolist()
        for r in self.running:
            r.left -= 1
            if r.left == 0:
                r.done.set_result(None)
        self.running = [r for r in self.running if r.left]


async def client(engine: Engine, tracer: trace.Tracer, rng: random.Random) -> None:
    await asyncio.sleep(rng.random())
    with tracer.start_as_current_span("POST /generate", kind=trace.SpanKind.SERVER):
        r = Request(rng.randint(16, 256), rng.randint(4, 32))
        engine.waiting.put_nowait(r)
        await r.done


async def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--requests", type=int, default=40)
    options = args.parse_args()
    tracer, rng = start("generate"), random.Random(1)
    engine = Engine()
    loop = asyncio.create_task(engine.run())
    await asyncio.gather(*(client(engine, tracer, rng) for _ in range(options.requests)))
    loop.cancel()
    print("counts:", otelgpu.flush() and otelgpu.stats())


if __name__ == "__main__":
    asyncio.run(main())
