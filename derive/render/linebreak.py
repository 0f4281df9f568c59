r"""Line breaks in LaTeX: how wide a formula is, and where it may be broken.

The printers write delimiters of fixed size (``\bigl(``), never ``\left(``, so that a line can be
broken inside parentheses. A line is broken before ``+`` and ``-``, as far outside as possible, and
between the factors of a product where no sum offers a place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["broken", "text_width", "width"]

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[{}^_]|\s+|.")
_SUM_BEFORE = re.compile(r"\\sum_\{(?:[^{}]|\{[^{}]*\})*\}\s*$")
_OPENING = {r"\bigl": 0.46, r"\Bigl": 0.6, r"\biggl": 0.74, r"\Biggl": 0.8}
_CLOSING = {r"\bigr": 0.46, r"\Bigr": 0.6, r"\biggr": 0.74, r"\Biggr": 0.8}
# Widths in em of Computer Modern at 10 pt, spaces around operators included.
_WIDTHS = {
    r"\,": 0.17,
    r"\;": 0.28,
    r"\quad": 1.0,
    r"\qquad": 2.0,
    r"\top": 0.78,
    r"\lVert": 0.5,
    r"\rVert": 0.5,
    r"\exp": 1.6,
    r"\tanh": 2.3,
    r"\cdot": 0.72,
    r"\circ": 0.94,
    r"\cdots": 1.4,
    r"\!": -0.17,
    "=": 1.34,
    "+": 1.23,
    "-": 1.23,
    "<": 1.34,
    ">": 1.34,
    ",": 0.45,
    "(": 0.39,
    ")": 0.39,
    "'": 0.28,
    "m": 0.88,
    "w": 0.74,
    "W": 1.1,
}
_ARGUMENT_ONLY = {r"\hat": 1.0, r"\mathrm": 0.95, r"\mathbf": 1.15, r"\text": 0.95, r"\mathit": 1.0}


def text_width(words: str) -> float:
    """Width in em of words set upright."""
    return 0.5 * len(words)


@lru_cache(maxsize=4096)
def width(body: str) -> float:
    r"""Width in em of a formula in display style, estimated from above.

    Parameters
    ----------
    body : str
        LaTeX as the printers of this package write it.

    Examples
    --------
    >>> width(r"\frac{1}{s}") < width(r"\frac{1}{s} x") < 3
    True
    """
    return _Measure(body).total()


class _Measure:
    def __init__(self, body: str) -> None:
        self.tokens = [t for t in _TOKEN.findall(body) if not t.isspace()]
        self.at = 0

    def total(self) -> float:
        out = 0.0
        while self.at < len(self.tokens):
            out += self._next()
        return out

    def _argument(self) -> float:
        """Width of the group or token that follows."""
        if self.at >= len(self.tokens):
            return 0.0
        if self.tokens[self.at] != "{":
            return self._next()
        self.at += 1
        out = 0.0
        while self.at < len(self.tokens) and self.tokens[self.at] != "}":
            out += self._next()
        self.at += 1
        return out

    def _next(self) -> float:
        nucleus = self._nucleus()
        scripts = [0.0]
        while self.at < len(self.tokens) and self.tokens[self.at] in "^_":
            self.at += 1
            scripts.append(0.75 * self._argument() + 0.05)
        return nucleus + max(scripts)

    def _nucleus(self) -> float:
        token = self.tokens[self.at]
        if token == "{":
            return self._argument()
        self.at += 1
        if token in _WIDTHS:
            return _WIDTHS[token]
        if token in _OPENING or token in _CLOSING:
            self.at += 1
            return _OPENING.get(token, 0.0) or _CLOSING[token]
        if token in (r"\frac", r"\dfrac"):
            return max(self._argument(), self._argument()) + 0.3
        if token == r"\tfrac":
            return 0.78 * max(self._argument(), self._argument()) + 0.3
        if token == r"\sqrt":
            return self._argument() + 0.9
        if token == r"\operatorname":
            return self._argument() + 0.34
        if token == r"\sum":
            return 1.3
        if token in _ARGUMENT_ONLY:
            return _ARGUMENT_ONLY[token] * self._argument()
        if token.startswith("\\"):
            return 0.62
        return 0.8 if token.isupper() else 0.53


@dataclass(frozen=True)
class _Place:
    """A place to break at: before position `at`, at a cost, continued with `lead`."""

    at: int
    cost: float
    depth: int
    lead: str


def broken(body: str, first: float, rest: float) -> list[str]:
    r"""Break a formula into lines.

    Parameters
    ----------
    body : str
        LaTeX of a formula.
    first, rest : float
        Room in em on the first line and on each following one.

    Returns
    -------
    list of str
        A continuation line starts with ``\quad`` for each level of parentheses it stands in.
    """
    if width(body) <= first:
        return [body]
    places = [_Place(0, 0.0, 0, ""), *_places(body)]
    ends = [*(p.at for p in places[1:]), len(body)]
    # best[k]: cheapest lines from place k on, as (cost, index of the next place)
    best: list[tuple[float, int]] = [(0.0, 0)] * len(places) + [(0.0, 0)]
    for k in range(len(places) - 1, -1, -1):
        room = first if k == 0 else rest
        options = []
        for stop in range(k, len(places)):
            line = places[k].lead + body[places[k].at : ends[stop]].strip()
            excess = max(0.0, width(line) - room)
            cost = 1e3 * excess + 12 + places[k].cost + best[stop + 1][0]
            options.append((cost, stop + 1))
            if excess > 0:
                break
        best[k] = min(options)
    lines, k = [], 0
    while k < len(places):
        stop = best[k][1]
        lines.append(places[k].lead + body[places[k].at : ends[stop - 1]].strip())
        k = stop
    return lines


def _places(body: str) -> list[_Place]:
    """Places where a line may break, from left to right."""
    places = []
    braces = depth = 0
    previous = ""
    calls: list[bool] = []  # whether each open parenthesis holds an argument
    after_call = False
    for match in _TOKEN.finditer(body):
        token, at = match.group(), match.start()
        if token == "{":
            braces += 1
        elif token == "}":
            braces -= 1
        elif braces == 0:
            if token in _OPENING or (token == "(" and previous not in _OPENING):
                applied = _applied(body, at)
                if not applied and at and previous not in ("+", "-", "="):
                    cost = 6 + 5 * after_call + 14 * depth
                    places.append(_Place(at, cost, depth, _lead(depth, r"\cdot ")))
                calls.append(applied)
                depth += 1
            elif token in _CLOSING or (token == ")" and previous not in _CLOSING):
                depth -= 1
                after_call = calls.pop() if calls else False
            elif token in "+-" and at and previous and previous not in ("(", "="):
                places.append(_Place(at, 14 * depth, depth, _lead(depth, "{}")))
            elif token in (r"\frac", r"\tfrac") and _after_factor(body, at):
                places.append(_Place(at, 3 + 14 * depth, depth, _lead(depth, r"\cdot ")))
            elif token in (r"\operatorname", r"\mathrm") and _after_factor(body, at):
                places.append(_Place(at, 7 + 14 * depth, depth, _lead(depth, r"\cdot ")))
        if not token.isspace():
            previous = token
    return places


def _lead(depth: int, sign: str) -> str:
    return r"\quad " + r"\qquad " * depth + sign


def _applied(body: str, at: int) -> bool:
    """Whether the parenthesis at a position belongs to what stands before it: a function, a sum."""
    before = body[:at]
    called = bool(before) and not before.endswith((" ", ","))
    return called or _SUM_BEFORE.search(before) is not None


def _after_factor(body: str, at: int) -> bool:
    """Whether what stands before a position is a factor that a product may be broken after."""
    before = body[:at].rstrip()
    before = before[:-2] if before.endswith(r"\,") else before
    ends_group = before.endswith(")")
    differential = body.startswith(r"\mathrm{d}", at)
    return ends_group and not differential
