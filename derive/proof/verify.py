"""Verification from scratch, step by step, and a cache of results by content.

The key of a step is a digest of the source of the toolkit, of the theorem's file and all files of
proofs that it imports, and of the versions of what computes: a change in any of them makes the step
run again. Results are JSON.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import platformdirs

from derive.calculus.certificates import Certificate
from derive.errors import DeriveError, MissingExtraError
from derive.proof.assumption import satisfying
from derive.proof.collection import find, module_of
from derive.proof.theorem import Theorem

__all__ = ["Cache", "StepResult", "Verified", "verify", "verify_step"]

COMPUTES = ("sympy", "numpy", "scipy", "mpmath", "torch", "transformers", "python-flint")


@dataclass(frozen=True)
class StepResult:
    """One step, checked.

    Attributes
    ----------
    certificate : Certificate
        What was shown, or not.
    seconds : float
        How long that took when it ran.
    missing : str
        Why the step could not be checked here (a package is not installed), or "".
    cached : bool
        Whether the result was known.
    """

    certificate: Certificate
    seconds: float
    missing: str = ""
    cached: bool = False


@dataclass(frozen=True)
class Verified:
    """One theorem, checked.

    Attributes
    ----------
    theorem : Theorem
        Which.
    steps : tuple of StepResult
        One for each step.
    problem : str
        Why the assumptions cannot be satisfied, or "".
    """

    theorem: Theorem
    steps: tuple[StepResult, ...]
    problem: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the verdict stands; None if a step could not be checked and no other fails."""
        failed = [s for s in self.steps if not s.certificate.holds and not s.missing]
        if self.problem or failed:
            return False
        return None if any(s.missing for s in self.steps) else True

    @property
    def seconds(self) -> float:
        """Time of the checks, when they ran."""
        return sum(s.seconds for s in self.steps)

    @property
    def cached(self) -> bool:
        """Whether all of them were known."""
        return all(s.cached for s in self.steps)


class Cache:
    """Results of steps by content.

    Parameters
    ----------
    folder : Path, optional
        Where; by default the user's cache folder, or what ``NORMDERIVE_CACHE`` names.
    """

    def __init__(self, folder: Path | None = None) -> None:
        named = os.environ.get("NORMDERIVE_CACHE")
        default = Path(named) if named else Path(platformdirs.user_cache_dir("normderive"))
        self.folder = (folder or default) / "steps"

    def get(self, key: str) -> StepResult | None:
        """Return what is known of a step, or None; what cannot be read is not known."""
        try:
            found = json.loads((self.folder / f"{key}.json").read_text())
            certificate = Certificate(**found["certificate"])
            return StepResult(certificate, float(found["seconds"]), cached=True)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, result: StepResult) -> None:
        """Keep a result; only what holds is kept."""
        if not result.certificate.holds:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"certificate": asdict(result.certificate), "seconds": result.seconds})
        with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as file:
            file.write(text)
        os.replace(file.name, self.folder / f"{key}.json")


def verify_step(id_: str, index: int) -> StepResult:
    """Run one step of a theorem; what it raises is a certificate that fails."""
    (theorem,) = find([id_])
    started = time.perf_counter()
    check = theorem.steps[index].check
    missing = ""
    try:
        certificate = check.certificate()
    except MissingExtraError as error:
        missing = str(error)
        certificate = Certificate(check.label, theorem.steps[index].claim, False, missing)
    except (DeriveError, ArithmeticError, ValueError, TypeError, RuntimeError) as error:
        words = f"{type(error).__name__}: {error}"
        certificate = Certificate(check.label, theorem.steps[index].claim, False, words)
    return StepResult(certificate, time.perf_counter() - started, missing)


def verify(
    theorems: Sequence[Theorem], *, workers: int = 1, cache: Cache | None = None
) -> Iterator[Verified]:
    """Check theorems, and yield each as soon as its steps are done.

    Parameters
    ----------
    theorems : sequence of Theorem
        Which.
    workers : int
        Processes.
    cache : Cache, optional
        Known results; nothing is looked up or kept without one.
    """
    done: dict[tuple[str, int], StepResult] = {}
    to_run: list[tuple[Theorem, int]] = []
    for theorem in theorems:
        for index in range(len(theorem.steps)):
            known = cache.get(_key(theorem, index)) if cache else None
            if known is None:
                to_run.append((theorem, index))
            else:
                done[theorem.id, index] = known
    waiting = list(theorems)

    def finished() -> Iterator[Verified]:
        for theorem in list(waiting):
            found = [done.get((theorem.id, k)) for k in range(len(theorem.steps))]
            steps = tuple(result for result in found if result is not None)
            if len(steps) == len(theorem.steps):
                waiting.remove(theorem)
                yield Verified(theorem, steps, _problem(theorem))

    yield from finished()
    for theorem, index, result in _run(to_run, workers):
        done[theorem.id, index] = result
        if cache:
            cache.put(_key(theorem, index), result)
        yield from finished()


def _run(
    steps: list[tuple[Theorem, int]], workers: int
) -> Iterator[tuple[Theorem, int, StepResult]]:
    if workers <= 1 or len(steps) < 2:
        for theorem, index in steps:
            yield theorem, index, verify_step(theorem.id, index)
        return
    with ProcessPoolExecutor(workers) as pool:
        jobs = {pool.submit(verify_step, t.id, k): (t, k) for t, k in steps}
        for job in as_completed(jobs):
            yield (*jobs[job], job.result())


def _problem(theorem: Theorem) -> str:
    try:
        satisfying(theorem.assumptions)
    except DeriveError as error:
        return str(error)
    return ""


# -- keys


def _key(theorem: Theorem, index: int) -> str:
    parts = [_toolkit(), _versions(), _file_digest(module_of(theorem)), theorem.id, str(index)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=1)
def _toolkit() -> str:
    found = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return found.hexdigest()


@lru_cache(maxsize=1)
def _versions() -> str:
    found = [platform.python_version()]
    for package in COMPUTES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


@lru_cache(maxsize=1024)
def _file_digest(module: str) -> str:
    """Digest of the file that defines a theorem, and of what it imports of its own package."""
    root = module.partition(".")[0]
    found = hashlib.sha256()
    for name in sorted(_imports(module, root)):
        found.update(name.encode() + _source(name).encode())
    return found.hexdigest()


@lru_cache(maxsize=1024)
def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).read_text() if spec is not None and spec.origin else ""


def _imports(module: str, root: str) -> set[str]:
    """Return a module and all modules under `root` that it imports, directly or not."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or importlib.util.find_spec(name) is None:
            continue
        found.add(name)
        for node in ast.walk(ast.parse(_source(name))):
            if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
                continue
            named = node.module
            if named.partition(".")[0] == root:
                waiting.append(named)
                waiting += [m for a in node.names if _is_module(m := f"{named}.{a.name}")]
    return found


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
