"""How often intervals hold the laws, as a page of Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from derive.laws.coverage import Case, Confirmation, Look, bias, rate

__all__ = ["coverage_page"]

TOKENS = {0.0: "independent tokens", 0.5: "correlated tokens (0.5)"}
GRADIENTS = {0.0: "independent cotangents", 1.0: "one cotangent for all tokens"}
CONDITIONS: tuple[tuple[str, Callable[[Case], str]], ...] = (
    ("sublayers", lambda case: ", ".join(case.law.sublayers)),
    ("norm", lambda case: case.law.norm),
    ("tokens", lambda case: TOKENS.get(case.correlation, str(case.correlation))),
    (
        "cotangents",
        lambda case: GRADIENTS.get(case.gradient_correlation, str(case.gradient_correlation)),
    ),
    ("placement", lambda case: case.law.placement),
)


def coverage_page(
    cases: Sequence[Case],
    looks: Sequence[Look],
    confirmations: Sequence[Confirmation],
    deep: Sequence[Look] = (),
) -> str:
    """Return the page.

    Parameters
    ----------
    cases : sequence of Case
        The table.
    looks : sequence of Look
        Its intervals.
    confirmations : sequence of Confirmation
        The misses among them, measured again.
    deep : sequence of Look
        Stacks of real sizes.
    """
    parts = [
        "# How well the laws hold\n",
        *_setting(cases, looks),
        "\n## Rate of coverage\n",
        *_rates(looks),
        *_families(looks),
        "\n## Misses, measured again\n",
        *_misses(confirmations),
        *(_deep(deep) if deep else ()),
    ]
    return "\n".join(parts) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _setting(cases: Sequence[Case], looks: Sequence[Look]) -> Iterator[str]:
    one = cases[0]
    measured = {id(look.case) for look in looks}
    without = dict.fromkeys(case.law.placement for case in cases if id(case) not in measured)
    placements = dict.fromkeys(case.law.placement for case in cases)
    yield (
        f"Written by `derive coverage`. {len(cases)} cases: {len(placements)} placements, with "
        f"LayerNorm and RMSNorm, relu, gelu, uniform attention, and attention and relu in turn, "
        f"independent and correlated tokens, independent and shared cotangents; L = {one.layers}, "
        f"d = {one.width}, f = {one.hidden}, n = {one.law.tokens}, {one.seeds} stacks a case from "
        f"seed {one.seed} on, each with seeds of its own, of PyTorch's modules and autograd in "
        f"{one.dtype}. `admin` has omega = 1.5, `mhc` a = 0.1, b1 = 1, b2 = c1 = c2 = 0.5."
    )
    yield (
        f"Without a law: {', '.join(without)}." if without else "Every placement has a law in all."
    )


def _rates(looks: Sequence[Look]) -> Iterator[str]:
    yield (
        "Intervals of 95 %. Of each quantity there is one interval a case, so that these are "
        "independent and the interval of the rate is exact (Clopper and Pearson). Where seeds "
        "do not differ there is nothing to cover: those agree with the law to rounding, or not. "
        "Matrices are those of the first block that has them.\n"
    )
    rows = []
    for quantity in dict.fromkeys(look.quantity for look in looks):
        own = [look for look in looks if look.quantity == quantity]
        fixed = [look for look in own if not look.has_spread]
        agree = f"{sum(look.covered for look in fixed)} of {len(fixed)}" if fixed else "-"
        rows.append([quantity, str(rate(own)), agree, _bias(own)])
    header = ["quantity", "interval holds the law", "no spread, equal", "mean of log(measured/law)"]
    yield from _table(header, rows)


def _bias(looks: Sequence[Look]) -> str:
    mean, error = bias(looks)
    return "-" if math.isnan(mean) else f"{mean:+.4f} ± {error:.4f}"


def _families(looks: Sequence[Look]) -> Iterator[str]:
    for title, key in CONDITIONS:
        yield f"\n### By {title}\n"
        groups: dict[str, list[Look]] = {}
        for look in looks:
            groups.setdefault(key(look.case), []).append(look)
        rows = []
        for name, group in groups.items():
            pair = (
                [look for look in group if look.quantity == what]
                for what in ("growth", "gradient_ratio")
            )
            matrices = [look for look in group if look.quantity.startswith("W_")]
            held = rate(matrices)
            weights = f"{held.held} of {held.total}" if held.total else "-"
            rows.append([name, *(str(rate(one)) for one in pair), weights])
        yield from _table([title, "growth", "gradient ratio", "weight gradients"], rows)
    yield "\nIntervals of several matrices of one stack are not independent: counts only."


def _misses(confirmations: Sequence[Confirmation]) -> Iterator[str]:
    failed = [one for one in confirmations if one.failed]
    if not confirmations:
        yield "None."
        return
    level = 0.05 / len(confirmations)
    again = confirmations[0].again.case
    yield (
        f"{len(confirmations)} intervals missed. Each was measured again with {again.seeds} fresh "
        f"seeds at 1 - 0.05/{len(confirmations)} = {1 - level:.6f}: the chance that any law is "
        f"called failing without reason is at most 5 %. {len(confirmations) - len(failed)} held; "
        f"{len(failed)} failed beyond chance"
        + ("." if not failed else ", and were measured at a larger width:\n")
    )
    if not failed:
        return
    rows = []
    for one in failed:
        case, wider = one.again.case, one.wider
        rows.append(
            [
                case.law.placement,
                case.law.norm,
                ", ".join(case.law.sublayers),
                f"{case.correlation:g}, {case.gradient_correlation:g}",
                one.again.quantity,
                f"{one.again.law:.4g}",
                f"{100 * one.again.deviation:+.1f} %",
                f"{100 * wider.deviation:+.1f} % at d = {wider.case.width}" if wider else "-",
                one.reason,
            ]
        )
    header = ["placement", "norm", "sublayers", "correlations", "quantity", "law"]
    near = f"deviation at d = {again.width}"
    yield from _table([*header, near, "wider", "reason"], rows)


def _deep(looks: Sequence[Look]) -> Iterator[str]:
    one = looks[0].case
    yield "\n## Real sizes\n"
    yield (
        f"Stacks of PyTorch's modules in {one.dtype}, sublayers and norms as above, f = d, one "
        f"token (the decoder two tokens on a memory whose tokens are the same), seeds from "
        f"{one.seed} on, the same for every row. The last columns are the variance of the "
        "logarithm of the gradient ratio over stacks, and that times d/L: a product over depth is "
        "nearly log-normal. Where the variance exceeds 1 the mean is carried by few stacks and "
        "its interval is wide; the law is of the mean.\n"
    )
    rows = []
    for first, second in _pairs(looks):
        case = first.case
        rows.append(
            [
                case.law.placement,
                str(case.width),
                str(case.layers),
                str(case.seeds),
                *_beside(first),
                *_beside(second),
                f"{second.estimate.spread:.2g}",
                f"{second.estimate.spread * case.width / case.layers:.2f}",
            ]
        )
    header = ["placement", "d", "L", "stacks", "growth law", "measured", "holds", "ratio law"]
    yield from _table([*header, "measured", "holds", "variance", "times d/L"], rows)


def _pairs(looks: Sequence[Look]) -> Iterator[tuple[Look, Look]]:
    ratio = {id(look.case): look for look in looks if look.quantity == "gradient_ratio"}
    for look in looks:
        if look.quantity == "growth":
            yield look, ratio[id(look.case)]


def _beside(look: Look) -> list[str]:
    found = look.estimate
    shown = f"{found.mean:.3g} ({found.low:.3g} to {found.high:.3g})"
    return [f"{look.law:.4g}", shown if look.has_spread else f"{found.mean:.6g}", _held(look)]


def _held(look: Look) -> str:
    return ("yes" if look.has_spread else "equal") if look.covered else "no"
