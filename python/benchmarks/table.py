# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Output of the scripts that need a GPU: rows for docs/hardware.md, or why a row is missing."""

import sys


def row(what, result):
    print("| %s | %s |" % (what, result), flush=True)


def skip(why):
    print("skipped: %s" % why, flush=True)
    sys.exit(0)


def torch_on_gpu():
    """Returns torch if it can use a GPU, and ends the program with the reason if it cannot."""
    try:
        import torch
    except (ImportError, OSError) as e:
        skip("torch cannot be imported: %s" % e)
    try:
        torch.cuda.init()
    except Exception as e:  # no driver, an old one, or a device that nobody may use
        skip("torch cannot use a GPU: %s" % str(e).splitlines()[0])
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    return torch
