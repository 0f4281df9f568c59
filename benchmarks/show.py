"""Time of deriving a Jacobian at symbolic d, against SymPy's entries at d = 2, 3, 4.

The two are measured in turn in one run. The rival is what SymPy offers for such a block: write it
out entry by entry at a concrete d and call ``Matrix.jacobian``. It answers less: one d, expanded,
without names or steps. The ratio says how much longer it takes; above 1, deriving at symbolic d is
faster. Both are timed cold: memos and SymPy's cache are emptied before.

    python benchmarks/show.py [--json] [--repeat 3] [--sizes 2,3,4] [--limit 20]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import sympy as sp
from sympy.core.cache import clear_cache

import derive
from derive import symbols
from derive.calculus.explicit import explicit

PLACEMENTS = ("post", "pre")
NORMS = ("layernorm", "rmsnorm")
SUBLAYERS = ("abstract", "ffn:tanh", "gated:silu")
HIDDEN = 2
"""Hidden width f of the feed-forward sublayers, where entries are written out."""


def forget() -> None:
    """Empty SymPy's cache and every memo of the toolkit."""
    clear_cache()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "derive":
            for value in vars(module).values():
                getattr(value, "cache_clear", lambda: None)()


def timed(work: Callable[[], object]) -> float:
    """Seconds of one cold run."""
    forget()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def entries(block: sp.Basic, d: int) -> sp.Matrix:
    """SymPy's own Jacobian of the block, entry by entry, at width d."""
    y = explicit(block, {symbols.d: d, symbols.f: HIDDEN})
    states = [s for s in y.free_symbols if s.name.startswith("x_")]
    return y.jacobian(sorted(states, key=lambda s: s.name))


def row(placement: str, norm: str, sublayer: str, d: int, repeat: int) -> dict[str, object]:
    """Measure both for one block, in turn."""
    x = derive.state("x")
    block = derive.block(placement, norm, sublayer, x)
    ours, theirs = [], []
    for _ in range(repeat):
        ours.append(timed(lambda: derive.derivation(block, x)))
        theirs.append(timed(lambda: entries(block, d)))
    derived, explicit_ = statistics.median(ours), statistics.median(theirs)
    return {
        "placement": placement,
        "norm": norm,
        "sublayer": sublayer,
        "d": d,
        "derive_s": derived,
        "entries_s": explicit_,
        "ratio": explicit_ / derived,
    }


def show_after_import() -> dict[str, float]:
    """Seconds of ``derive show`` in a fresh process: the import, and the command after it."""
    script = (
        "import time; a = time.perf_counter(); import derive.cli; b = time.perf_counter()\n"
        "try: derive.cli.main(['show', 'post', '--sublayer', 'causal-attention', '--steps'])\n"
        "except SystemExit: pass\n"
        "import sys; print(b - a, time.perf_counter() - b, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    imported, shown = map(float, done.stderr.split())
    return {"import_s": imported, "show_s": shown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--sizes", default="2,3,4", help="values of d for the entries")
    parser.add_argument(
        "--limit", type=float, default=20.0, help="leave out larger d once entries take this long"
    )
    options = parser.parse_args()
    rows = []
    for placement in PLACEMENTS:
        for norm in NORMS:
            for sublayer in SUBLAYERS:
                for d in map(int, options.sizes.split(",")):
                    rows.append(row(placement, norm, sublayer, d, options.repeat))
                    if rows[-1]["entries_s"] > options.limit:
                        break
    result = {
        "python": platform.python_version(),
        "sympy": sp.__version__,
        "cores": os.cpu_count(),
        "repeat": options.repeat,
        "show": show_after_import(),
        "rows": rows,
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(
        f"{'placement':<10}{'norm':<11}{'sublayer':<18}{'d':>2}{'derive ms':>11}"
        f"{'entries ms':>12}{'ratio':>8}"
    )
    for r in rows:
        print(
            f"{r['placement']:<10}{r['norm']:<11}{r['sublayer']:<18}{r['d']:>2}"
            f"{1e3 * r['derive_s']:>11.1f}{1e3 * r['entries_s']:>12.1f}{r['ratio']:>8.1f}"
        )
    show = result["show"]
    print(
        f"derive show, attention with steps: {show['show_s']:.2f} s after an import of "
        f"{show['import_s']:.2f} s"
    )


if __name__ == "__main__":
    main()
