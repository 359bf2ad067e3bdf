# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings from a trainer's configuration."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import reprlib
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeGuard, Union, cast

from ._names import SYNCS, VERBOSITIES
from ._nvtx import Ranges
from ._runtime import runtime
from ._settings import Schedule, Settings
from ._stepcsv import step_csv

MAX_SIZE = 1 << 20  # bytes of a file
_PROFILER = "(use torch.profiler with otelgpu.trace_handler(folder))"
_ELSEWHERE = ("trace_dir", "output_dir", "record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "activities")

Keys = Dict[str, Callable[[Any], Optional[str]]]


def configure(source: Union[str, "os.PathLike[str]", Mapping[str, Any]], at: str = "") -> None:
    """Changes what is recorded, from a YAML file (which requires `pip install 'otelgpu[yaml]'`) or a mapping, usually three
    nodes of a trainer's own configuration. at is the path of the node that has them, such as "runtime.gpu"; by default they
    are at the top.

        timing:
          enabled: true         # false records nothing, as does `timing: false`
          verbosity: default    # off, default, verbose or debug: sections up to this one are recorded
          sync: deferred        # group and immediate wait for the device at the end of outermost, or all, sections, for up
                                # to 2 minutes; none takes host times only
        nvtx:                   # sections and steps as NVTX ranges; `nvtx: true` is enough
          enabled: true
          domain: otelgpu
        profiling:              # false or null records nothing
          schedule: {skip_first: 50, warmup: 1, active: 3, every: 10}   # of loops that state none
          print_report: true    # to standard error at the end of the process
          step_csv: steps.csv   # or {path: steps.csv, phases: [load, eval]}

    Keys of the schedule, and enabled, may also be in profiling itself, as in guides of PyTorch's profiler. Missing keys
    keep their values, so that configure({"timing": {"enabled": False}}) only pauses; a running section is still recorded.
    OTELGPU_ENABLED=false wins. Other nodes are ignored. Wrong keys and values are logged, all together, and omitted.
    """
    try:
        problems = _Reader(runtime().settings).read(source if isinstance(source, Mapping) else _load(source), at)
    except ImportError:
        problems = ["PyYAML is not installed (pip install 'otelgpu[yaml]')"]
    except Exception as e:
        problems = [str(e) or repr(e)]
    if problems:
        name = "a mapping" if isinstance(source, Mapping) else str(source)
        runtime().trouble(f"configure({name})", "; ".join(problems))


def _load(path: Union[str, "os.PathLike[str]"]) -> Any:
    yaml: Any = importlib.import_module("yaml")
    with open(os.fspath(path), "rb") as f:
        text = f.read(MAX_SIZE + 1)
    if len(text) > MAX_SIZE:
        raise ValueError(f"the file is larger than {MAX_SIZE >> 10} KiB")
    return next(iter(yaml.safe_load_all(text)), None)


class _Reader:
    """Applies the values of a configuration to settings, and collects problems."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._problems: List[str] = []
        self._enabled: List[bool] = []  # everything has to be enabled
        self._domain: Optional[str] = None
        self._nvtx: Optional[bool] = None

    def read(self, node: Any, at: str) -> List[str]:
        for key in filter(None, at.split(".")):
            node = node.get(key) if _is_mapping(node) else None
        if not _is_mapping(node):
            return [f"there is no mapping at {at!r}" if at else "it is no mapping"]
        root = node
        schedule: Keys = {name: functools.partial(self._count, name) for name in Schedule._fields}
        enabled: Keys = {"enabled": self._enable}
        if root.get("timing") is not None:
            self._node("timing", root["timing"], {**enabled, "verbosity": self._verbosity, "sync": self._sync})
        if root.get("nvtx") is not None:
            self._node("nvtx", root["nvtx"], {"enabled": self._enable_nvtx, "domain": self._name_domain})
            if self._nvtx is False:
                self._settings.ranges = None
            elif self._nvtx or self._settings.ranges is not None:
                self._settings.ranges = Ranges(self._domain or "otelgpu")
        before = self._settings.schedule
        if "profiling" in root:
            self._node("profiling", False if root["profiling"] is None else root["profiling"], {
                **enabled, "schedule": lambda value: self._node("profiling.schedule", value, schedule), **schedule,
                "print_report": self._print, "step_csv": self._step_csv, **{key: _elsewhere for key in _ELSEWHERE}})
        if self._enabled:
            self._settings.enabled = all(self._enabled)
        found = self._settings.schedule
        if found.every and (found.wait or found.every < found.warmup + max(found.active, 1)):
            self._problem("profiling.schedule", "every is the length of a cycle: at least warmup + active, and without wait")
        elif found.repeat and not (found.every or found.active):
            self._problem("profiling.schedule", "repeat needs active or every")
        else:
            before = found
        self._settings.schedule = before
        self._settings.update()
        return self._problems

    def _node(self, at: str, node: Any, keys: Keys) -> Optional[str]:
        if isinstance(node, bool) and "enabled" in keys:
            node = {"enabled": node}
        if not _is_mapping(node):
            self._problem(at, f"must be a mapping, found {_shown(node)}")
            return None
        for key, value in node.items():
            take = keys.get(key) if isinstance(key, str) else None
            if take is None:
                near = difflib.get_close_matches(key[:64], keys, 1) if isinstance(key, str) else []
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(k for k in keys if k not in _ELSEWHERE)}"
                self._problem(at, f"unknown key {_shown(key)} ({hint})")
            elif value is not None:
                problem = take(value)
                if problem:
                    self._problem(f"{at}.{key}", problem)
        return None

    def _problem(self, at: str, text: str) -> None:
        self._problems.append(f"{at}: {text}")

    def _enable(self, value: Any) -> Optional[str]:
        if not isinstance(value, bool):
            return _no_switch(value)
        self._enabled.append(value)
        return None

    def _enable_nvtx(self, value: Any) -> Optional[str]:
        if not isinstance(value, bool):
            return _no_switch(value)
        self._nvtx = value
        return None

    def _name_domain(self, value: Any) -> Optional[str]:
        self._domain = value if isinstance(value, str) else None
        return None if self._domain else f"must be a name, found {_shown(value)}"

    def _verbosity(self, value: Any) -> Optional[str]:
        value = "off" if value is False else value  # as YAML 1.1 reads it
        if value not in VERBOSITIES:
            return f"must be one of {', '.join(VERBOSITIES)}, found {_shown(value)}"
        self._settings.verbosity = value
        return None

    def _sync(self, value: Any) -> Optional[str]:
        if value not in SYNCS:
            return f"must be one of {', '.join(SYNCS)}, found {_shown(value)}"
        self._settings.sync = value
        return None

    def _count(self, name: str, value: Any) -> Optional[str]:
        if type(value) is not int or value < 0:
            return f"must be a number of steps, found {_shown(value)}"
        self._settings.schedule = self._settings.schedule._replace(**{name: value})
        return None

    def _print(self, value: Any) -> Optional[str]:
        self._settings.print_report = value is True
        return None if isinstance(value, bool) else _no_switch(value)

    def _step_csv(self, value: Any) -> Optional[str]:
        given: Mapping[Any, Any] = value if _is_mapping(value) else {"path": value}
        right = isinstance(given.get("path"), (str, os.PathLike)) and _is_names(given.get("phases", []))
        if not right or set(given) - {"path", "phases"}:
            return f"must be a path or {{path, phases}}, found {_shown(value)}"
        step_csv(given["path"], given.get("phases", []))
        return None


def _is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _is_names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in cast(Any, value))


# Aliases of YAML can make a short file represent a text of any length.
_short = reprlib.Repr()
_short.maxlevel, _short.maxstring, _short.maxother = 2, 60, 60
_shown = _short.repr


def _elsewhere(_: Any) -> str:
    return f"is not of otelgpu {_PROFILER}"


def _no_switch(value: Any) -> str:
    return f"must be true or false, found {_shown(value)}"
