# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of trainers that run the loop and call back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Iterator, Optional, cast

from ._loop import Step, _attach, _begin, _detach, _end, _forget
from ._runtime import runtime
from ._section import Section
from ._settings import Schedule


class Turns:
    """The steps of one training run. Each begins at the end of the previous one, with the wait for its batch. No
    method raises into the trainer."""

    def __init__(self, name: str, item_type: Optional[str], schedule: Optional[Schedule]) -> None:
        self.step: Optional[Step] = None
        self._name, self._item_type, self._schedule = name, item_type, schedule
        self._token: Any = None
        self._boundary: Any = None
        self._phase: Optional[Section] = None
        self._index = 0

    def begin(self, index: int) -> None:
        """Begins a step with the wait for its batch."""
        try:
            self.cancel()
            self._index = index
            self.step = _begin(self._name, index, self._item_type, self._schedule, None, self._boundary)
            self._boundary = None
            self._token = _attach(self.step)
            self.phase("data")
        except Exception as e:
            runtime().trouble("beginning a step of a trainer", repr(e))

    def phase(self, name: Optional[str]) -> None:
        """Ends the current phase and begins another one, or none for None."""
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.__exit__(None, None, None)
        if name is not None and self.step is not None:
            self._phase = self.step.phase(name)
            self._phase.__enter__()

    def end(self, failed: Optional[BaseException] = None) -> None:
        """Ends the step."""
        step, self.step = self.step, None
        if step is None:
            return
        try:
            self.phase(None)
            _detach(self._token)
            self._boundary = _end(step, None, failed)
        except Exception as e:
            runtime().trouble("ending a step of a trainer", repr(e))

    def cancel(self) -> None:
        """Discards the step that waits for its batch, if no batch follows or other work ran in between."""
        step, self.step = self.step, None
        if step is None:
            return
        try:
            phase, self._phase = self._phase, None
            if phase is not None:
                phase.discard()
                phase.__exit__(None, None, None)
            _detach(self._token)
            _forget(step)
        except Exception as e:
            runtime().trouble("dropping a step of a trainer", repr(e))

    def take(self, batch: Any, names: Sequence[str] = ("input_ids",)) -> int:
        """Adds the items of a batch to the step: tokens if those are counted, otherwise samples. Returns the number of
        tokens, 0 if unknown. names are the keys of the tensor with a token for each element."""
        step = self.step
        if step is None or step._runtime is None:
            return 0
        try:
            tokens = _tokens(batch, names)
            found = tokens if self._item_type == "token" else _samples(batch)
            if found:
                step.items = (step.items or 0) + found
                step.item_type = step.item_type or "sample"
            return tokens
        except Exception as e:
            runtime().trouble("the items of a batch", repr(e))
            return 0

    def again(self) -> None:
        """Restarts the waiting step, excluding what ran since it began."""
        if self.step is not None:
            self.begin(self._index)


def _tensors(batch: Any, depth: int = 0) -> Iterator[Any]:
    """Yields the tensors of a batch of nested mappings and sequences."""
    if hasattr(batch, "shape"):
        yield batch
    elif depth < 8:
        mapped, listed = isinstance(batch, Mapping), isinstance(batch, (list, tuple))
        values: Any = batch.values() if mapped else batch if listed else ()
        for value in values:
            yield from _tensors(value, depth + 1)


def _samples(batch: Any) -> int:
    """Returns the size of the first dimension of the first tensor that has one."""
    return next((int(x.shape[0]) for x in _tensors(batch) if len(x.shape) > 0), 0)


def _tokens(batch: Any, names: Sequence[str]) -> int:
    if isinstance(batch, Mapping):
        for name in names:
            shape: Any = getattr(cast(Any, batch).get(name), "shape", None)
            if shape is not None:
                return math.prod(int(d) for d in shape[:2])
    return 0
