"""What is wrong with a piece of LaTeX, as a list of complaints; no TeX is needed."""

from __future__ import annotations

import re


def complaints(body: str) -> list[str]:
    found = []
    for name, ok in (
        ("braces do not balance", _balanced(body)),
        ("begin and end do not match", _environments(body)),
        ("left and right delimiters do not match", _delimiters(body)),
        ("empty subscript or superscript", not re.search(r"[_^]\s*(\{\s*\}|$|[\s)&])", body)),
        ("double script", not _double_script(body)),
        ("a Python name with an underscore", not re.search(r"[A-Za-z]{2,}_[A-Za-z]{2,}", body)),
        ("a Python operator", "**" not in body),
        ("a node printed by its class", not re.search(r"(?<![\\A-Za-z])[A-Z][a-z]+\(", body)),
        ("two signs in a row", not re.search(r"[+-]\s+[+-]|\{\}[+-]\s*[+-]", body)),
    ):
        if not ok:
            found.append(name)
    return found


def _balanced(body: str) -> bool:
    depth = 0
    for token in re.findall(r"\\.|[{}]", body, flags=re.DOTALL):
        depth += (token == "{") - (token == "}")
        if depth < 0:
            return False
    return depth == 0


def _environments(body: str) -> bool:
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{([^}]*)\}", body):
        if kind == "begin":
            stack.append(name)
        elif not stack or stack.pop() != name:
            return False
    return not stack


def _delimiters(body: str) -> bool:
    stack = []
    for size, side in re.findall(r"\\(left|right|[bB]ig{1,2})([lr]?)(?![a-z])", body):
        if size in ("left", "right"):
            side, size = {"left": "l", "right": "r"}[size], "left"
        if side == "l":
            stack.append(size)
        elif not stack or stack.pop() != size:
            return False
    return not stack


def _double_script(body: str) -> bool:
    """Whether a base carries two superscripts or two subscripts."""
    group = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
    for chain in re.findall(rf"(?:\s*[_^]\s*(?:{group}|\\[A-Za-z]+|.))+", body):
        bare = re.sub(group, "", chain)
        if bare.count("^") > 1 or bare.count("_") > 1:
            return True
    return False
