# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that needs a GPU, in one run of at most ten minutes: prints rows for docs/hardware.md.

    python hardware.py KIT [--seconds 570] [--only instruments,looking] [--cpu] [--nvml PATH]

KIT is the zip or folder that `make hardware-kit` builds: the programs and the OpenTelemetry SDK, for a machine without
Go and without a network. The parts run one after the other, the most important first. Each has its own time limit, and
a part that fails, hangs or does not fit into the time left is reported and does not affect the others. --cpu and --nvml
rehearse the run without a device."""

import argparse
import collections
import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
GRACE = 3  # seconds between the request to end and the kill, and again until the run goes on

# The most important first: wants is the time that a part takes at most, needs the least that it is useful with, in seconds.
Part = collections.namedtuple("Part", "name wants needs command")
PARTS = [
    Part("instruments", 85, 35, lambda r, s: [*r.script("instruments.py"), "--seconds", "%d" % max(min(60, s - 22), 5), *r.nvml()]),
    Part("looking", 330, 80, lambda r, s: [
        *r.script("looking.py"), r.shim, r.collector, "--kinds", "decode,train", "--budget", "%d" % (s - 5), *r.cpu(), *r.nvml()]),
    Part("pair", 100, 80, lambda r, s: [*r.script("looking.py"), r.shim, r.collector, "--kinds", "pair", *r.cpu(), *r.nvml()]),
    Part("frameworks", 90, 25, lambda r, s: [*r.script("frameworks.py"), "--budget", "%d" % (s - 3)]),
    Part("library", 90, 20, lambda r, s: [
        str(r.folder / "hardware.test"), "-test.run", "^TestHardware$", "-test.v", "-test.timeout", "%ds" % (s - 2)]),
    Part("launches", 60, 45, lambda r, s: [*r.script("launches.py"), r.shim, r.collector]),
]


class Run:
    """The state of one run: its rows, and what was not measured, with the reason."""

    def __init__(self, options, folder, deadline):
        self.options, self.folder, self.deadline = options, folder, deadline
        self.rows, self.missing = [], []
        self.shim, self.collector = str(folder / "libotelgpu_capture.so"), str(folder / "otelcol-gpu")
        paths = [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
        if not installed("opentelemetry.sdk"):
            paths.append(str(folder / "site"))
        self.environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)), PYTHONUNBUFFERED="1")

    def script(self, name):
        return [sys.executable, str(HERE / name)]

    def cpu(self):
        return ["--cpu"] if self.options.cpu else []

    def nvml(self):
        return ["--nvml", self.options.nvml] if self.options.nvml else []

    def left(self):
        """Returns the seconds that a part may take, so that it can also be killed before the deadline."""
        return self.deadline - time.monotonic() - 2 * GRACE - 1

    def miss(self, name, why):
        self.missing.append("%s: %s" % (name, why))
        print("-- " + self.missing[-1], flush=True)

    def take(self, part):
        """Runs a part in the time left: the first parts take it from the last ones."""
        seconds = min(part.wants, self.left())
        if seconds < part.needs:
            self.miss(part.name, "not run: it needs %d s, and %d s are left (run it alone with --only %s)" % (
                part.needs, max(seconds, 0), part.name))
            return
        print("-- %s, at most %d s" % (part.name, seconds), flush=True)
        count, last, begin = len(self.rows), ["", ""], time.monotonic()
        try:
            status = execute(part.command(self, seconds), seconds, self.environment, lambda line: self.line(part.name, line, last))
        except OSError as e:
            self.miss(part.name, "cannot be started: %s" % e)
            return
        found = len(self.rows) - count
        so_far = "after %d rows" % found if found else "without a row"
        if status is None:
            self.miss(part.name, "ended by its limit of %d s, %s" % (seconds, so_far))
        elif status != 0:
            why = "; ".join(dict.fromkeys(filter(None, last))) or "no message"
            self.miss(part.name, "ended with status %d %s: %s" % (status, so_far, why))
        elif not found and not any(x.startswith(part.name + ": ") for x in self.missing):
            self.miss(part.name, "it printed no rows")
        print("-- %s took %.0f s" % (part.name, time.monotonic() - begin), flush=True)

    def line(self, name, line, last):
        if line.startswith("| "):
            self.rows.append(line)
            print(line, flush=True)
            return
        if len(line.strip()) > 9:  # no brace or colon
            last[-1] = line.strip()
        if "rror: " in line:  # of a process that the part has started, perhaps
            last[0] = line.strip()
        for word in ("skipped: ", "failed: "):
            if line.startswith(word):
                self.miss(name, line.strip())
                return
        print("   " + line, flush=True)

    def summary(self):
        print("\n| check | %s |\n| --- | --- |" % device())
        print("\n".join(self.rows))
        print("\nnot measured:" if self.missing else "\neverything was measured")
        for x in self.missing:
            print("- " + x)
        sys.stdout.flush()


def installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def end(process):
    """Ends a process and all that it started. One that the kernel does not let die is left behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def execute(command, seconds, environment, take):
    """Passes each line that a program prints to take, and returns its exit status; None: it reached its limit."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                               errors="replace", start_new_session=True, env=environment)

    def read():
        for line in process.stdout:
            take(line.rstrip("\n"))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        end(process)
    reader.join(1)  # a process in another session can hold the pipe open
    return status


def smi(what):
    """Returns lines of nvidia-smi, without units; none if it does not work."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        out = subprocess.run(["nvidia-smi", *what, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=5)
        if out.returncode == 0:
            return [x.strip() for x in out.stdout.splitlines() if x.strip()]
    return []


def device():
    return "; ".join(smi(["--query-gpu=name,driver_version"])) or "no device"


def prepare(kit, folder):
    """Unpacks the kit, or copies what a folder has of it."""
    if zipfile.is_zipfile(kit):
        with zipfile.ZipFile(kit) as z:
            z.extractall(folder)
    elif os.path.isdir(kit):
        shutil.copytree(kit, folder, dirs_exist_ok=True)
    else:
        sys.exit("%s is neither a zip nor a folder (build it with `make hardware-kit`)" % kit)
    for name in ("otelcol-gpu", "hardware.test", "libotelgpu_capture.so"):
        if (folder / name).exists():
            (folder / name).chmod(0o755)


def main(arguments=None):
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kit", help="the zip or folder of `make hardware-kit`")
    parser.add_argument("--seconds", type=float, default=570, help="limit of the whole run (default 570)")
    parser.add_argument("--only", help="parts to run, with commas (default all): " + ", ".join(p.name for p in PARTS))
    parser.add_argument("--cpu", action="store_true", help="rehearse without a GPU")
    parser.add_argument("--nvml", help="library to read instead of the driver's libnvidia-ml.so.1")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else [p.name for p in PARTS]
    if unknown := set(names) - {p.name for p in PARTS}:
        parser.error("--only has %s, which is no part" % ", ".join(sorted(unknown)))
    parts = [p for p in PARTS if p.name in names]
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, max(options.seconds - 1, 0.1))  # whatever happens
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = Run(options, pathlib.Path(folder), begin + options.seconds)
        try:
            prepare(options.kit, run.folder)
            for pid in smi(["--query-compute-apps=pid"]):
                run.miss("device", "process %s uses it as well: the figures include what it does" % pid)
            for part in parts:
                run.take(part)
        except KeyboardInterrupt:
            run.miss("the run", "interrupted after %.0f s" % (time.monotonic() - begin))
        run.summary()


if __name__ == "__main__":
    main()
