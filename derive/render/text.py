"""A derivation as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from derive.calculus.derivation import Derivation
from derive.calculus.maps import TokenBlocks
from derive.calculus.printing import text
from derive.render.assumptions import activations, assumptions
from derive.render.chains import Chain, chains, defined, output_of
from derive.render.paths import BlockName, mixing_blocks, named_token_block, paths

__all__ = ["aligned_text", "derivation_text"]

_COLUMNS = 96


def derivation_text(D: Derivation, steps: bool = False) -> str:
    r"""Return the block, its Jacobian :math:`dy/dx`, the definitions and the assumptions as text.

    Parameters
    ----------
    D : Derivation
        From `derive.derivation`.
    steps : bool, optional
        Whether the numbered steps follow, grouped by the quantity whose differential they find.

    Returns
    -------
    str
        Lines without trailing spaces. An expression stays on one line, to be copied.

    Examples
    --------
    >>> import derive
    >>> D = derive.derivation(derive.block("pre", "rmsnorm"), derive.state("x"))
    >>> print(derivation_text(D).split("where")[0].strip())
    y     = x + F(N(x))
    dy/dx = I + DF(N(x)) (1/r) diag(gain) (I - xhat xhat'/d)
    """
    y, x = text(output_of(D)), text(D.state)
    head = [(y, text(D.block)), (f"d{y}/d{x}", text(D.jacobian))]
    if D.mixes_tokens:
        head.append((f"d{y}[i]/d{x}[j]", text(named_token_block(D))))
    sections = [aligned_text(head), ["where", *_indented(aligned_text(_definitions(D)))]]
    sections += [_block_lines(node) for node in mixing_blocks(D)]
    stated = [line for a in assumptions(D) for line in _wrapped("- ", a.text)]
    sections.append(["assuming", *_indented(stated)])
    if steps:
        sections.append(["steps", *_indented(list(_steps(D)))])
    return "\n\n".join("\n".join(lines) for lines in sections if len(lines) > 1)


def aligned_text(pairs: list[tuple[str, str]]) -> list[str]:
    """Return lines ``name = value`` with the equality signs below each other."""
    left = max((len(name) for name, _ in pairs), default=0)
    return [f"{name:<{left}} = {value}" for name, value in pairs]


def _indented(lines: list[str], by: int = 2) -> list[str]:
    return [(" " * by + line).rstrip() for line in lines]


def _wrapped(lead: str, words: str) -> list[str]:
    return textwrap.wrap(
        words,
        _COLUMNS,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _definitions(D: Derivation) -> list[tuple[str, str]]:
    found = [(text(name), text(value)) for name, value in defined(D)]
    return found + [(name, text(formula)) for name, _, formula in activations(D)]


def _block_lines(node: TokenBlocks) -> list[str]:
    terms = paths(node)
    labels = max(len(label) for _, label in terms)
    lines = [f"{text(BlockName(node.label, *node.args[2:]))} ="]
    for k, (term, label) in enumerate(terms):
        body = text(term)
        sign = "-" if body.startswith("-") else " " if k == 0 else "+"
        lines.append(f"  {label:<{labels}}  {sign} {body.lstrip('-')}")
    return lines


def _steps(D: Derivation) -> Iterator[str]:
    number = 0
    for count, chain in enumerate(chains(D)):
        if count:
            yield ""
        yield from _chain_lines(D, chain, number)
        number += len(chain.steps) + (chain.reads_off is not None)


def _chain_lines(D: Derivation, chain: Chain, number: int) -> Iterator[str]:
    left = text(chain.steps[0].before) if chain.steps else ""
    for k, step in enumerate(chain.steps):
        head = left if k == 0 else " " * len(left)
        yield f"{number + k + 1:>3}. {head} = {text(step.after)}"
        yield from _wrapped(" " * 7 + f"[{step.rule}] ", step.why)
    if chain.reads_off is not None:
        closing = chain.reads_off
        derivative = f"d{text(chain.of)}/d{text(D.state)}"
        yield f"{number + len(chain.steps) + 1:>3}. {derivative} = {text(D.jacobian)}"
        yield from _wrapped(" " * 7 + f"[{closing.rule}] ", closing.why)
