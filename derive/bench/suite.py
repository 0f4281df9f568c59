"""The benchmark suite: its tasks by name, and a run of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from derive.bench import numeric, symbolic
from derive.bench.growth import growth
from derive.bench.machine import blas, one_thread, versions
from derive.bench.problem import Problem, measure
from derive.bench.rows import Row
from derive.errors import UnknownNameError

__all__ = ["TASKS", "Report", "run"]

TASKS: Mapping[str, Callable[[bool], Iterator[Problem]]] = {
    "tokens": numeric.token_stacks,
    "sequences": numeric.sequence_jacobians,
    "ensembles": numeric.ensembles,
    "products": numeric.vector_products,
    "gradients": numeric.gradients,
    "lyapunov": numeric.lyapunov,
    "symbolic": symbolic.derivations,
}
"""Problems by the name of their task; each takes whether to be quick."""


@dataclass
class Report:
    """Rows, and what was measured on.

    Attributes
    ----------
    rows : list of Row
    growth : list of str
        Fitted exponents of the closed form's time.
    blas, versions : str
    """

    rows: list[Row] = field(default_factory=list)
    growth: list[str] = field(default_factory=list)
    blas: str = ""
    versions: str = ""


def run(
    tasks: Iterable[str] | None = None,
    *,
    quick: bool = False,
    seen: Callable[[Problem], None] = lambda problem: None,
) -> Report:
    """Run tasks on one thread: agreement first, then times in turn.

    Parameters
    ----------
    tasks : iterable of str, optional
        Names out of `TASKS`; all by default.
    quick : bool
        Small sizes and three rounds instead of five.
    seen : callable
        Called with each problem before it is measured.

    Returns
    -------
    Report

    Raises
    ------
    UnknownNameError
        If a task is not known.
    """
    names = list(TASKS) if tasks is None else list(tasks)
    for name in names:
        if name not in TASKS:
            raise UnknownNameError(f"task: expected one of {', '.join(TASKS)}, got {name!r}")
    report = Report()
    with one_thread():
        for name in names:
            for problem in TASKS[name](quick):
                seen(problem)
                report.rows += measure(
                    problem, rounds=3 if quick else 5, least=0.005 if quick else 0.05
                )
        report.growth = growth(names, quick=quick)
        report.blas, report.versions = blas(), versions()
    return report
