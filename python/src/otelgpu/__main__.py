# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts programs whose kernels otelcol-gpu can record.

    otelgpu run COMMAND [ARGUMENT...]   # runs the command with the capture library
    otelgpu library                     # prints the path of the capture library
    otelgpu --version                   # prints the version of the package

`python -m otelgpu` is the same. While the command runs, `otelcol-gpu capture PID`, or the Collector's gpu_capture receiver,
records its kernels in short windows. Outside windows it has no cost."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import List, Optional

VARIABLE = "CUDA_INJECTION64_PATH"
FOLDER = "OTELGPU_CAPTURE_DIR"


class Unusable(Exception):
    """Exits with the problem, and the remedy in parentheses."""


def library() -> str:
    path = pathlib.Path(__file__).resolve().parent / "libotelgpu_capture.so"
    if not path.is_file():
        raise Unusable("this installation has no capture library (install the wheel for Linux on x86-64 or ARM64, or build it "
                       f"by `make capture` in a clone of the repository and set {VARIABLE} yourself)")
    return str(path)


def run(command: List[str]) -> None:
    """Replaces this process by the command."""
    path = library()
    if os.environ.get(VARIABLE, path) != path:
        raise Unusable(f"{VARIABLE} is {os.environ[VARIABLE]!r}, and CUDA loads one library only (unset it, or start the "
                       "command without `otelgpu run`)")
    folder = os.environ.get(FOLDER) or "/dev/shm/otelgpu"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as e:
        raise Unusable(f"cannot make the folder of the recordings: {e} (set {FOLDER} to one that can be written)") from None
    os.environ[VARIABLE] = path
    try:
        os.execvp(command[0], command)
    except OSError as e:
        raise Unusable(f"cannot start {command[0]!r}: {e.strerror}") from None


def main(args: Optional[List[str]] = None) -> int:
    args = sys.argv[1:] if args is None else args
    try:
        if args[:1] == ["run"] and args[1:2] == ["--"]:
            del args[1]
        if args[:1] == ["run"] and len(args) > 1:
            run(args[1:])
        if args in (["--version"], ["version"]):
            from ._runtime import VERSION

            print(f"otelgpu {VERSION}")
            return 0
        if args == ["library"]:
            print(library())
            return 0
    except Unusable as e:
        print(f"otelgpu: {e}", file=sys.stderr)
        return 1
    wanted = args in (["-h"], ["--help"], ["help"])
    print(__doc__, file=sys.stdout if wanted else sys.stderr)
    return 0 if wanted else 2


if __name__ == "__main__":
    sys.exit(main())
