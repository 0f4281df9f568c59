"""The precision a reference runs in: float64 throughout, whatever a module asks for inside.

Many modules of Hugging Face cast to float32 inside RMSNorm, softmax or rotary, whatever the dtype
of their input, so that a float64 Jacobian carries float32 errors.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from derive.backends.extras import load_torch

__all__ = ["PrecisionReport", "float64_throughout"]

_RUNNING: ContextVar[PrecisionReport | None] = ContextVar("running", default=None)


@dataclass
class PrecisionReport:
    """What arithmetic really took place inside `float64_throughout`.

    Attributes
    ----------
    promoted : int
        Number of requests for a lower floating dtype that were answered in float64, over all
        evaluations (`jacobian` evaluates its map three times).
    results : collections.Counter
        Number of operations by the floating dtype of their result, ``{"float64": 412}``.
    """

    promoted: int = 0
    results: Counter[str] = field(default_factory=Counter)

    @property
    def dtype(self) -> str:
        """The narrowest real floating dtype that an operation returned; "none" if none ran."""
        return min(self.results, key=_bits, default="none")

    def __str__(self) -> str:
        casts = f"{self.promoted} lower-precision request{'' if self.promoted == 1 else 's'}"
        return f"ran in {self.dtype} ({casts} promoted)"


@contextmanager
def float64_throughout() -> Iterator[PrecisionReport]:
    """Answer every request for a lower floating dtype in float64, inside the ``with`` block.

    ``x.float()``, ``x.half()``, ``x.to(torch.float32)``, ``x.type(torch.float32)``,
    ``x.type_as(y)``, ``torch.softmax(x, -1, dtype=torch.float32)``, ``torch.empty(3,
    dtype=torch.float32)`` and their like give float64 (complex64 gives complex128). The default
    dtype is float64 meanwhile, so that ``torch.zeros(3)`` is float64 too. Works under
    ``torch.func.jacrev`` and ``vmap``. It changes requests, not stored tensors: a parameter or a
    table that *is* float32 keeps its values. It sees calls of the Python API; a scripted or
    compiled function is one call. A block inside another shares its report.

    Yields
    ------
    PrecisionReport
        Filled while the block runs; read it to say which dtype the reference really ran in.

    Raises
    ------
    MissingExtraError
        When torch is not installed.
    """
    torch = load_torch()
    if (running := _RUNNING.get()) is not None:
        yield running
        return
    default = torch.get_default_dtype()
    report = PrecisionReport()
    token = _RUNNING.set(report)
    try:
        torch.set_default_dtype(torch.float64)
        with _promotion_mode()(report):
            yield report
    finally:
        torch.set_default_dtype(default)
        _RUNNING.reset(token)


def _bits(dtype: str) -> int:
    return int("".join(c for c in dtype.partition("_")[0] if c.isdigit()))


@functools.cache
def _promotion_mode() -> Any:
    """Return the mode class; its base lives in torch, hence the function around it."""
    torch = load_torch()
    from torch.overrides import TorchFunctionMode

    narrow_casts = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}
    # A dtype argument of these says how bytes are to be read, not which precision is wanted.
    reinterpretations = {torch.Tensor.view, torch.frombuffer, torch.from_file}

    class PromotionMode(TorchFunctionMode):
        def __init__(self, report: PrecisionReport) -> None:
            super().__init__()
            self.report = report

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if func in narrow_casts:
                self.report.promoted += 1
                func = torch.Tensor.double
            elif func is torch.Tensor.type:
                args, kwargs = self.dtype_of_type(args, kwargs)
            elif func is torch.Tensor.type_as or (
                func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], torch.Tensor)
            ):
                # x.type_as(y) and x.to(y) ask for the dtype and device of y.
                func, args = torch.Tensor.to, (args[0], args[1].device, args[1].dtype, *args[2:])
            if func not in reinterpretations:
                args = tuple(self.wide(a) for a in args)
                kwargs = {name: self.wide(a) for name, a in kwargs.items()}
            result = func(*args, **kwargs)
            for item in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(item, torch.Tensor) and item.dtype.is_floating_point:
                    self.report.results[str(item.dtype).removeprefix("torch.")] += 1
            return result

        def wide(self, argument: Any) -> Any:
            if not isinstance(argument, torch.dtype):
                return argument
            if argument.is_floating_point and argument.itemsize < 8:
                self.report.promoted += 1
                return torch.float64
            if argument.is_complex and argument.itemsize < 16:
                self.report.promoted += 1
                return torch.complex128
            return argument

        def dtype_of_type(self, args: Any, kwargs: Any) -> Any:
            # x.type accepts a dtype, "torch.FloatTensor" or torch.FloatTensor itself.
            wanted = args[1] if len(args) > 1 else kwargs.pop("dtype", None)
            if wanted is None or isinstance(wanted, torch.dtype):
                dtype = wanted
            else:
                name = (
                    wanted if isinstance(wanted, str) else f"{wanted.__module__}.{wanted.__name__}"
                )
                narrow = {"FloatTensor", "HalfTensor", "BFloat16Tensor"}
                dtype = torch.float32 if name.rpartition(".")[2] in narrow else wanted
            return ((args[0], *args[2:]) if dtype is None else (args[0], dtype, *args[2:])), kwargs

    return PromotionMode
