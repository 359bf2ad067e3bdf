# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the release for PyPI: the sdist, a platform-independent wheel, and a wheel with the capture library for each
Linux platform.

    python build_wheels.py OUT            # needs requirements-build.txt; SOURCE_DATE_EPOCH makes the files reproducible
    python build_wheels.py OUT --library  # the capture libraries only, as OUT/linux_ARCH/libotelgpu_capture.so

The libraries are compiled by Zig's C compiler, which links with the symbols of the old glibc, so that they load in images
as old as CentOS 7. A compiler of the system would link with the symbols of its glibc, which older images lack."""

import argparse
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SHIM = HERE.parent / "receiver" / "gpucapturereceiver" / "shim"
GLIBC = "2.17"
# Names of the architecture in Go and in the compiler, and tags of wheels.
ARCHITECTURES = (("amd64", "x86_64"), ("arm64", "aarch64"))


def compile_library(arch: str, to: pathlib.Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-gnu.{GLIBC}", "-std=c11", "-O2", "-s",
                    "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-fPIC", "-shared",
                    "-o", str(to), *sorted(map(str, SHIM.glob("*.c"))), "-lpthread", "-ldl"], check=True)
    to.chmod(0o755)


def normalize(sdist: pathlib.Path, epoch: int) -> None:
    """Removes nondeterminism from the archive: times, owners, order."""
    with tarfile.open(sdist) as source:
        members = sorted(source.getmembers(), key=lambda m: m.name)
        whole = sdist.with_suffix(".tmp")
        with open(whole, "wb") as raw, gzip.GzipFile("", "wb", mtime=epoch, fileobj=raw) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out:
            for m in members:
                m.mtime, m.uid, m.gid, m.uname, m.gname, m.pax_headers = epoch, 0, 0, "", "", {}
                m.mode = 0o755 if m.isdir() or m.mode & 0o100 else 0o644
                out.addfile(m, source.extractfile(m) if m.isfile() else None)
    whole.replace(sdist)


def wheel(sdist: pathlib.Path, to: pathlib.Path, **env: str) -> None:
    """Builds from the sdist, as pip does for its users, in a new folder, because setuptools reuses the contents of
    build/."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-cache-dir",
                    "--disable-pip-version-check", "--wheel-dir", str(to), str(sdist)], check=True, env={**os.environ, **env})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--library", action="store_true", help="build the capture libraries only")
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    if args.library:
        for name, arch in ARCHITECTURES:
            compile_library(arch, out / f"linux_{name}" / "libotelgpu_capture.so")
        return
    epoch = int(os.environ.setdefault("SOURCE_DATE_EPOCH", str(int(time.time()))))
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        # A copy without the output of earlier builds.
        shutil.copytree(HERE, work / "source", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__"))
        subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(work / "dist"),
                        str(work / "source")], check=True, stdout=subprocess.DEVNULL)
        sdist, = (work / "dist").glob("*.tar.gz")
        normalize(sdist, epoch)
        wheel(sdist, work / "dist")
        for _, arch in ARCHITECTURES:
            library = work / arch / "libotelgpu_capture.so"
            compile_library(arch, library)
            wheel(sdist, work / "dist", OTELGPU_CAPTURE_LIBRARY=str(library),
                  OTELGPU_WHEEL_PLATFORM="manylinux_{0}_{1}.manylinux2014_{1}".format(GLIBC.replace(".", "_"), arch))
        for file in sorted((work / "dist").iterdir()):
            shutil.copyfile(file, out / file.name)
            print(out / file.name)


if __name__ == "__main__":
    main()
