# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Training with JAX: steps timed on the host.

    python jax_train.py [--steps 50]

JAX returns before the device has finished, so a phase waits for its result. Sections read no device events in JAX. For
kernels on a GPU, start the program by `otelgpu run python jax_train.py` and record windows with the gpu_capture
receiver: the kernels become children of the step.
"""

import argparse

import jax

import otelgpu
from setup import start


@jax.jit
def update(w, x):
    loss, gradient = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
    return w - 0.01 * gradient, loss


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--steps", type=int, default=50)
    options = args.parse_args()

    start("train")
    key = jax.random.key(0)
    w = jax.random.normal(key, (256, 16))
    batches = (jax.random.normal(key, (64, 256)) for _ in range(options.steps))
    for step, x in otelgpu.loop("train", batches, item_type="sample"):
        with step.phase("update"):
            w, loss = jax.block_until_ready(update(w, x))
        step.items = len(x)


if __name__ == "__main__":
    main()
