"""A recording of an array computation: run once, replayed with other arrays of the same shapes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from derive.linalg.arrays import Array
from derive.linalg.operator import Operator

__all__ = ["DepartureError", "Recorded", "Recording", "record", "recorded"]

Result = TypeVar("Result")


class DepartureError(Exception):
    """The replay would not do what was recorded; the computation has to run by itself."""


class Recorded(NDArrayOperatorsMixin):
    """An array whose uses are written down: NumPy's functions, its methods and its indexing.

    What depends on its entries (``bool``, ``float``, ``item``) becomes a condition of the replay.
    """

    __slots__ = ("recorded_array", "recording", "slot")
    _METHODS = frozenset(
        ["all", "any", "astype", "clip", "copy", "cumsum", "dot", "max", "mean", "min", "prod"]
    ) | frozenset(
        ["ravel", "repeat", "reshape", "squeeze", "std", "sum", "swapaxes", "take", "transpose"]
    )

    def __init__(self, recording: Recording, slot: int, value: Any) -> None:
        self.recording, self.slot, self.recorded_array = recording, slot, value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise DepartureError  # its steps would be lost

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if options.get("out") is not None:
            raise DepartureError
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return self.recording.call(function, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return self.recording.call(function, args, options)

    def __getattr__(self, name: str) -> Any:
        if name in Recorded._METHODS:
            return partial(self._method, name)
        if name in ("shape", "ndim", "size", "dtype"):
            return getattr(self.recorded_array, name)
        raise AttributeError(name)

    def _method(self, name: str, *args: Any, **options: Any) -> Any:
        return self.recording.call(operator.methodcaller(name, *args, **options), (self,), {})

    @property
    def T(self) -> Any:
        """The transpose."""
        return self._method("transpose")

    def __getitem__(self, key: Any) -> Any:
        return self.recording.call(operator.itemgetter(key), (self,), {})

    def __len__(self) -> int:
        return len(self.recorded_array)

    def item(self) -> Any:
        """Return the entry, which the replay must find again."""
        return self.recording.expect(self, self.recorded_array.item())

    def __bool__(self) -> bool:
        return bool(self.recording.expect(self, bool(self.recorded_array)))

    def __float__(self) -> float:
        return float(self.item())


def recorded(function: Callable[..., Array]) -> Callable[..., Array]:
    """Let a function of arrays be written down as one step."""

    @wraps(function)
    def call(*args: Any) -> Any:
        for arg in args:
            if isinstance(arg, Recorded):
                return arg.recording.call(function, args, {})
        return function(*args)

    return call


class Recording:
    """The steps from named input arrays to a result that holds arrays and operators."""

    def __init__(self) -> None:
        self._inputs: dict[str, Recorded] = {}
        self._frame: list[Any] = []
        self._steps: list[tuple[Callable[..., Any], tuple[int, ...], int | None]] = []
        self._conditions: list[tuple[int, Any]] = []
        self._build: Callable[[Sequence[Any]], Any] | None = None
        self._live: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the arrays that the result depends on."""
        return self._live

    def input(self, name: str, array: Array) -> Recorded:
        """Return an input as an array whose uses are written down."""
        if name not in self._inputs:
            self._inputs[name] = Recorded(self, self._slot(array), array)
        return self._inputs[name]

    def _slot(self, value: Any) -> int:
        self._frame.append(value)
        return len(self._frame) - 1

    def call(self, function: Callable[..., Any], args: Sequence[Any], options: Any) -> Any:
        """Run a function on the arrays behind its arguments and write the step down."""
        if any(isinstance(a, list | tuple) and _holds_recorded(a) for a in args):
            raise DepartureError
        if any(isinstance(a, Recorded) for a in options.values()):
            raise DepartureError
        places = tuple(a.slot if isinstance(a, Recorded) else self._slot(a) for a in args)
        bound = partial(function, **options) if options else function
        value = bound(*(self._frame[place] for place in places))
        slot = self._slot(value)
        self._steps.append((bound, places, slot))
        if isinstance(value, tuple | list):
            whole = Recorded(self, slot, value)
            return tuple(whole[k] for k in range(len(value)))
        return Recorded(self, slot, value)

    def expect(self, array: Recorded, value: Any) -> Any:
        """Write down that an array has to have this value again."""
        self._conditions.append((array.slot, value))
        return value

    def finish(self, result: Any) -> Any:
        """End the recording; return the result with the arrays themselves in it.

        Raises
        ------
        DepartureError
            If the result holds something that cannot be found again.
        """
        used: set[int] = set()
        self._build = _Builder(self._frame, self._inputs.values()).build(result, used)
        needed = used | {slot for slot, _ in self._conditions}
        steps = []
        for function, places, slot in reversed(self._steps):
            if slot in needed:
                needed.update(places)
                steps.append((function, places, slot))
        self._steps = steps[::-1]
        self._live = tuple(name for name, one in self._inputs.items() if one.slot in needed)
        found = self._build(self._frame)
        written = {slot for _, _, slot in self._steps}
        entered = {one.slot for one in self._inputs.values()}
        constant = needed - written - entered
        self._frame = [v if slot in constant else None for slot, v in enumerate(self._frame)]
        self._places = tuple((name, self._inputs[name].slot) for name in self._live)
        self._inputs = {}
        return found

    def replay(self, inputs: Mapping[str, Array]) -> Any:
        """Return the result for other arrays of the recorded shapes.

        Raises
        ------
        DepartureError
            If a condition does not hold, or an array that was made is not finite.
        """
        if self._build is None:
            raise DepartureError
        frame = self._frame.copy()
        for name, slot in self._places:
            frame[slot] = inputs[name]
        for function, places, out in self._steps:
            frame[out] = function(*[frame[place] for place in places])  # type: ignore[index]
        for slot, value in self._conditions:
            if frame[slot] != value:
                raise DepartureError
        return self._build(frame)


def record(
    compute: Callable[[Recording], Result],
) -> tuple[Recording, Result]:
    """Run a computation once and return its recording with its result."""
    recording = Recording()
    result = compute(recording)
    return recording, recording.finish(result)


def _holds_recorded(items: Iterable[Any]) -> bool:
    return any(
        isinstance(item, Recorded) or (isinstance(item, list | tuple) and _holds_recorded(item))
        for item in items
    )


class _Builder:
    """Finds the arrays of a result among the recorded ones, by where they are in memory."""

    def __init__(self, frame: Sequence[Any], inputs: Iterable[Recorded]) -> None:
        self._slots: dict[Any, int] = {}
        self._arrays = [value for value in frame if isinstance(value, np.ndarray)]
        for slot, value in enumerate(frame):
            if isinstance(value, np.ndarray) and value.dtype == np.float64:
                self._slots.setdefault(_place(value), slot)
        self._inputs = [one.recorded_array for one in inputs]

    def build(self, result: Any, used: set[int]) -> Callable[[Sequence[Any]], Any]:
        """Return the function that makes the result from a frame; name the slots it reads."""
        if isinstance(result, Recorded):
            used.add(result.slot)
            return operator.itemgetter(result.slot)
        if isinstance(result, Operator):
            return self._operator(result, used)
        if isinstance(result, np.ndarray):
            return self._array(result, used)
        if isinstance(result, tuple):
            parts = [self.build(part, used) for part in result]
            return lambda frame: tuple([part(frame) for part in parts])
        return lambda frame: result

    def _array(self, array: Array, used: set[int]) -> Callable[[Sequence[Any]], Any]:
        slot = self._slots.get(_place(array))
        if slot is None:
            if any(np.may_share_memory(array, value) for value in self._arrays):
                raise DepartureError  # a view that was made outside
            return lambda frame: array
        used.add(slot)
        shape = array.shape
        if any(np.may_share_memory(array, one) for one in self._inputs):
            return lambda frame: frame[slot].reshape(shape)

        def checked(frame: Sequence[Any]) -> Array:
            found = frame[slot]
            if not math.isfinite(found.sum()):
                raise DepartureError
            return found.reshape(shape)

        return checked

    def _operator(self, op: Operator, used: set[int]) -> Callable[[Sequence[Any]], Any]:
        kind, fixed, parts = type(op), {}, []
        for name, value in vars(op).items():
            if isinstance(value, np.ndarray | Operator | tuple) and name != "shape":
                parts.append((name, self.build(value, used)))
            elif name != "_transposed":
                fixed[name] = value
        fixed.pop("_transposed", None)
        parts = [(name, part) for name, part in parts if name != "_transposed"]

        def rebuilt(frame: Sequence[Any]) -> Operator:
            copy: Operator = object.__new__(kind)
            attributes = copy.__dict__
            attributes.update(fixed)
            for name, part in parts:
                attributes[name] = part(frame)
            return copy

        return rebuilt


def _place(array: Array) -> Any:
    axes = [k for k, size in enumerate(array.shape) if size != 1]
    return (
        array.__array_interface__["data"][0],
        tuple(array.shape[k] for k in axes),
        tuple(array.strides[k] for k in axes),
    )
