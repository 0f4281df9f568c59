"""What every command prints with: a progress bar, JSON text, a table."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["json_text", "progress", "table_text"]


def progress(items: Sequence[Any], what: str) -> Iterable[Any]:
    """Iterate with a bar on stderr, on a terminal only."""
    from tqdm import tqdm

    return tqdm(items, desc=what, file=sys.stderr, disable=None, leave=False)


def json_text(value: Any) -> str:
    """JSON text; what is not finite becomes null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a header and rows in columns."""
    widths = [max(len(r[k]) for r in (header, *rows)) for k in range(len(header))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in (header, *rows)]
    return "\n".join(line.rstrip() for line in lines)
