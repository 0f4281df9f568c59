"""The machine that times are taken on: its BLAS, its threads, its memory."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["blas", "installed", "one_thread", "peak_megabytes", "versions"]

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def installed(module: str) -> Any | None:
    """Return a module, or None if it cannot be imported."""
    try:
        with warnings.catch_warnings():  # what a peer says of its own dependencies
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError:
        return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Run with one thread: BLAS and OpenMP limited, the process on one core.

    The core is given up by the others' schedulers as well: XLA counts the cores that it may use
    when it starts, and no option of it is as sure.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with ExitStack() as stack:
        if cores:
            os.sched_setaffinity(0, {max(cores)})
            stack.callback(os.sched_setaffinity, 0, cores)
        threads = installed("threadpoolctl")
        if threads is not None:
            stack.enter_context(threads.threadpool_limits(1))
        yield


def blas() -> str:
    """Return the BLAS libraries in the process, with kernels and threads."""
    threads = installed("threadpoolctl")
    if threads is None:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{found['name']} {found['version']} (threads unknown: threadpoolctl is missing)"
    pools = [p for p in threads.threadpool_info() if p["user_api"] in ("blas", "openmp")]
    names = {
        f"{p['internal_api']} {p.get('version') or ''} {p.get('architecture') or ''}".strip()
        + f" ({p['num_threads']} thread{'s' * (p['num_threads'] != 1)})"
        for p in pools
    }
    return ", ".join(sorted(names))


def versions() -> str:
    """Return the versions of what is measured."""
    parts = [f"Python {platform.python_version()}"]
    packages = ("numpy", "scipy", "sympy", "torch", "jax", "curvlinops-for-pytorch", "tensorgrad")
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            parts.append(f"{package} {metadata.version(package)}")
    return ", ".join(parts)


def peak_megabytes(work: Callable[[], object]) -> float | None:
    """Return by how much resident memory grows during one run, in megabytes (Linux)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        _CLEAR.write_text("5")
        before = _field("VmRSS")
        work()
        return max(0.0, (_field("VmHWM") - before) / 1e3)
    except (OSError, AttributeError, ValueError):
        work()
        return None


def _field(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise ValueError(name)
