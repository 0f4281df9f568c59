"""Which activation a callable is, told by its values and not by its name."""

from __future__ import annotations

from typing import Any

from derive.backends.extras import load_torch
from derive.backends.real_block import Activation
from derive.errors import UnknownNodeError

__all__ = ["activation_name"]


def activation_name(function: Any) -> Activation:
    """Name the activation that a callable or module computes.

    It is evaluated in float64 on a grid of [-40, 40] and compared with the framework's own
    functions. Two evaluations of one formula differ by rounding only, ``|difference| <= 1e-14
    (1 + |x|)`` (about 50 units in the last place); the nearest near-miss in use, the GELU with
    sqrt(2/pi) cut to ten digits, differs by 8e-13.

    Raises
    ------
    UnknownNodeError
        When it is none of relu, gelu, gelu_tanh, silu, tanh, or not element-wise.
    MissingExtraError
        When torch is not installed.
    """
    torch = load_torch()
    functional = torch.nn.functional
    known = {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
        "silu": functional.silu,
        "tanh": torch.tanh,
    }
    grid = torch.cat(
        [torch.linspace(-a, a, 801, dtype=torch.float64) for a in (3.0, 40.0)]
    ).reshape(1, 1, -1)
    with torch.no_grad():
        try:
            values = function(grid.clone())  # a copy: the function may work in place
        except Exception as error:
            raise UnknownNodeError(
                f"activation {function!r}: expected an element-wise function, "
                f"it fails on a tensor of shape {tuple(grid.shape)}: {error}"
            ) from error
        if isinstance(values, torch.Tensor) and values.shape == grid.shape:
            for name, reference in known.items():
                if bool(((values - reference(grid)).abs() <= 1e-14 * (1 + grid.abs())).all()):
                    return name
    raise UnknownNodeError(
        f"activation {function!r}: expected one that computes {', '.join(known)}; "
        "its values are none of these"
    )
