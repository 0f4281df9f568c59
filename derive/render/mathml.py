r"""LaTeX to MathML, for pages that show formulas without a script.

The conversion is latex2mathml's; what browsers lay out badly in its result is put right before and
after: upright and bold letters, function names, norms, limits below sums, aligned lines.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from derive.errors import DeriveError
from derive.render.extras import load

__all__ = ["to_mathml"]

_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_BOLD_DIGITS = {str(k): chr(0x1D7CE + k) for k in range(10)}
_APPLY = "\u2061"  # invisible function application; also marks the names of functions
_TIGHT = {"lspace": "0", "rspace": "0", "symmetric": "true"}
_CELL = "text-align: {side}; text-align: -webkit-{side}; padding: {gap}"
_UPRIGHT = "\u2064"  # marks upright identifiers, to tell them from words


def to_mathml(latex: str, display: bool = True) -> str:
    r"""Return presentation MathML of a LaTeX formula.

    Parameters
    ----------
    latex : str
        A formula without delimiters, as the printers of this package write it; it may be one
        ``align*`` or ``aligned`` environment.
    display : bool, optional
        Whether the formula stands on a line of its own.

    Returns
    -------
    str
        A ``math`` element, well-formed XML.

    Raises
    ------
    MissingExtraError
        If latex2mathml is not installed.
    DeriveError
        If the formula cannot be converted; the message shows it.
    """
    convert = load("latex2mathml.converter", "report").convert
    rows = _rows(latex)
    if _depth(latex) != 0:
        raise DeriveError(f"latex: the braces do not balance: {latex}")
    try:
        if rows is None:
            math = ET.fromstring(convert(_prepared(latex)))
        else:
            math = _table(
                [[ET.fromstring(convert(_prepared(c) or "{}")) for c in row] for row in rows]
            )
    except Exception as error:  # latex2mathml raises many kinds
        raise DeriveError(f"latex: cannot be written as MathML ({error!r}): {latex}") from error
    _strip_namespace(math)
    for element in list(math.iter()):
        _repair(element)
    _apply_functions(math)
    if "\\" in "".join(math.itertext()):
        raise DeriveError(f"latex: a command is not known to the MathML converter: {latex}")
    math.set("xmlns", _NAMESPACE)
    math.set("display", "block" if display else "inline")
    return ET.tostring(math, encoding="unicode")


def _depth(latex: str) -> int:
    bare = re.sub(r"\\.", "", latex)
    return bare.count("{") - bare.count("}")


def _rows(latex: str) -> list[list[str]] | None:
    """Cells of an alignment, or None if the formula is not one."""
    found = re.fullmatch(
        r"\s*\\begin\{(aligned|align\*?|split)\}(.*)\\end\{\1\}\s*", latex, flags=re.DOTALL
    )
    if found is None:
        return None
    rows, cell, depth = [[""]], "", 0
    for token in re.split(r"(\\begin|\\end|\\\\\*?(?:\[[^\]]*\])?|\\.|&)", found[2]):
        depth += (token == r"\begin") - (token == r"\end")
        if depth == 0 and (token == "&" or token.startswith(r"\\")):
            rows[-1].append(cell.strip())
            rows += [[""]] if token != "&" else []
            cell = ""
        else:
            cell += token
    rows[-1].append(cell.strip())
    return [row[1:] for row in rows if any(row)]


def _prepared(latex: str) -> str:
    """Rewrite what latex2mathml does not read as it is meant."""
    latex = re.sub(r"\\mathbf\{(\d)\}", lambda m: "{" + _BOLD_DIGITS[m[1]] + "}", latex)
    latex = re.sub(r"\\mathrm\{([^{}]*)\}", lambda m: rf"\text{{{_plain(m[1])}{_UPRIGHT}}}", latex)
    latex = re.sub(
        r"\\operatorname\{([^{}]*)\}", lambda m: rf"\text{{{_plain(m[1])}{_APPLY}}}", latex
    )
    latex = re.sub(r"\\[bB]igg?[lr]\s*(?=\\[lr]Vert)", "", latex)  # bars grow by themselves
    return latex.replace(r"\lVert", r"\left\Vert ").replace(r"\rVert", r"\right\Vert ")


def _plain(words: str) -> str:
    return words.replace(r"\_", "_").replace(r"\,", " ")


def _table(rows: list[list[ET.Element]]) -> ET.Element:
    """Set the cells of an alignment as a table: right, left, right, left."""
    math = ET.Element("math")
    table = ET.SubElement(math, "mtable", {"displaystyle": "true"})
    for row in rows:
        line = ET.SubElement(table, "mtr")
        for k, cell in enumerate(row):
            side = "right" if k % 2 == 0 else "left"
            gap = "0" if k % 2 else "0 0 0 1em" if k else "0"
            box = ET.SubElement(line, "mtd", {"style": _CELL.format(side=side, gap=gap)})
            box.extend(list(cell))
    return math


def _strip_namespace(math: ET.Element) -> None:
    for element in math.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib.pop("xmlns", None)


def _repair(element: ET.Element) -> None:
    words = (element.text or "").strip()
    if element.tag == "mtext" and words.endswith((_APPLY, _UPRIGHT)):
        element.tag = "mi"
        element.text = words[:-1]
        if len(words) == 2:
            element.set("mathvariant", "normal")
        if words.endswith(_APPLY):
            element.set("class", "function")
    elif element.tag == "mi" and words in ("exp", "tanh", "sin", "cos", "log"):
        element.set("class", "function")
    elif element.tag == "mo" and words in "()" and element.get("minsize"):
        element.attrib.update({"form": "prefix" if words == "(" else "postfix", **_TIGHT})
    elif element.tag == "mo" and words in "\u22a4\u2202":  # no operators with spaces
        element.tag = "mi"
        element.set("mathvariant", "normal")
    elif element.tag == "mi" and words in _BOLD_DIGITS.values():
        element.tag = "mn"
    elif element.tag == "mo" and words == "^":
        element.text = "\u02c6"
    elif element.tag == "msub" and len(element) and (element[0].text or "") == "\u2211":
        element.tag = "munder"
    elif element.tag == "mspace" and element.get("width") == "negativethinmathspace":
        element.set("width", "-0.167em")


def _apply_functions(math: ET.Element) -> None:
    """Put the invisible application after a function name, so that it stands off its left."""
    for parent in list(math.iter()):
        for k in range(len(parent) - 1, -1, -1):
            child = parent[k]
            base = child[0] if child.tag in ("msup", "msub") and len(child) else child
            if base.get("class") != "function":
                continue
            if child.tag in ("msup", "msub") or parent.tag not in ("msup", "msub"):
                applied = ET.Element("mo")
                applied.text = _APPLY
                parent.insert(k + 1, applied)
                if k:
                    parent.insert(k, ET.Element("mspace", {"width": "0.167em"}))
    for element in math.iter():
        element.attrib.pop("class", None)
