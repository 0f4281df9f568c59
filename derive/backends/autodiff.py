"""Outputs and Jacobians of real modules by the framework's own automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from derive.backends.extras import load_torch
from derive.backends.precision import float64_throughout
from derive.backends.real_block import RealBlock
from derive.errors import DomainError, ShapeError, UnknownNodeError, WeightError

__all__ = ["autodiff_jacobian", "check_weights", "jacobian", "output"]

Call: TypeAlias = "RealBlock | Sequence[RealBlock] | Callable[[Any], Any]"
FloatArray: TypeAlias = npt.NDArray[np.float64]


def jacobian(
    call: Call, x: npt.ArrayLike, *, module: Any = None, chunk_size: int | None = None
) -> FloatArray:
    """Jacobian of a block's output by its input, by reverse-mode automatic differentiation.

    ``J[i d + a, j d + b] = d y_i[a] / d x_j[b]`` of the map x -> y that the module computes, in
    float64 and eval mode, with the math kernel of attention and without the fused path of
    ``nn.TransformerEncoderLayer``; ``inference_mode`` and ``no_grad`` around the call are left.
    Training flags are put back; parameters are not touched. Casts to float32 that the module makes
    inside stay as they are unless this runs inside `float64_throughout`.

    Parameters
    ----------
    call : RealBlock, sequence of RealBlock, torch.nn.Module or callable
        The map, tensor (1, n, d) to tensor (1, n, d), or to a tuple that begins with it. A
        sequence of blocks is applied from the first to the last. A module whose parameters are
        not float64 is run on float64 copies of them.
    x : array_like, (n, d) or (1, n, d)
        Where to take the Jacobian.
    module : torch.nn.Module, optional
        The module behind a plain callable, to be put into eval mode and to have its weights
        checked.
    chunk_size : int, optional
        Rows computed at a time; all at once by default.

    Returns
    -------
    ndarray, (n d, n d)
        float64.

    Raises
    ------
    ShapeError
        When `x` is not (n, d), or the output's shape is not that of the input.
    DomainError
        When `x` or the result is not finite, when two evaluations differ (dropout in a module
        that was not passed), or when the module cuts the gradient (``detach``, ``no_grad``).
    WeightError
        When a parameter is not finite, or was made under ``inference_mode``.
    MissingExtraError
        When torch is not installed.
    """
    with _reference(call, x, module) as (evaluate, point):
        torch = load_torch()
        value = evaluate(point)
        if not torch.equal(value, evaluate(point)):
            raise DomainError(
                "argument call: expected a deterministic map, two evaluations at the same x "
                "differ; pass the module behind it as module= to have it put into eval mode"
            )
        tensor = _reverse_mode(evaluate, point, chunk_size)
        if not torch.any(tensor) and not torch.equal(value, evaluate(1.25 * point + 0.5)):
            raise DomainError(
                "argument call: the output depends on x but its Jacobian came back as 0; the "
                "module cuts the gradient (detach, no_grad or inference_mode inside)"
            )
        size = point.shape[1] * point.shape[2]
        return _finite(tensor.detach().reshape(size, size), "the Jacobian")


def output(call: Call, x: npt.ArrayLike, *, module: Any = None) -> FloatArray:
    """Output of a block at x, under the same conditions as `jacobian`.

    Parameters
    ----------
    call, x, module
        As for `jacobian`.

    Returns
    -------
    ndarray, (n, d)
        float64.

    Raises
    ------
    ShapeError, DomainError, WeightError, MissingExtraError
        As for `jacobian`.
    """
    with _reference(call, x, module) as (evaluate, point):
        return _finite(evaluate(point).detach()[0], "the output")


def autodiff_jacobian(
    blocks: RealBlock | Sequence[RealBlock], x: npt.ArrayLike, *, chunk_size: int | None = None
) -> FloatArray:
    """Jacobian of a block, or of blocks applied in sequence, in float64 throughout.

    ``J = J_L ... J_2 J_1``, but taken by one automatic differentiation of the whole stack, not as
    that product. It is `jacobian` inside `float64_throughout`.

    Parameters
    ----------
    blocks : RealBlock or sequence of RealBlock
        Applied from the first to the last.
    x : array_like, (n, d) or (1, n, d)
        Input of the first block.
    chunk_size : int, optional
        Rows computed at a time; all at once by default.

    Returns
    -------
    ndarray, (n d, n d)
        float64, laid out as by `jacobian`.

    Raises
    ------
    ShapeError, DomainError, WeightError, MissingExtraError
        As for `jacobian`.
    """
    with float64_throughout():
        return jacobian(blocks, x, chunk_size=chunk_size)


def check_weights(module: Any) -> None:
    """Check that every parameter of a module holds finite values, and no buffer holds NaN.

    Raises
    ------
    WeightError
        Naming the first parameter (or buffer) that does not.
    """
    torch = load_torch()
    for kind, tensors in (
        ("parameter", module.named_parameters()),
        ("buffer", module.named_buffers()),
    ):
        for name, tensor in tensors:
            where = f"{type(module).__name__}: {kind} {name!r}"
            if tensor.is_meta:
                raise WeightError(f"{where}: expected values, it is on the meta device")
            values = tensor.detach()
            # A buffer may be a mask, whose -inf is meant.
            bad = ~torch.isfinite(values) if kind == "parameter" else torch.isnan(values)
            if count := int(bad.sum()):
                raise WeightError(
                    f"{where}: expected finite values, {count} of {tensor.numel()} are not"
                )


def _reverse_mode(evaluate: Callable[[Any], Any], point: Any, chunk_size: int | None) -> Any:
    """Return the Jacobian (1, n, d, 1, n, d), all rows at once where the module allows it."""
    torch = load_torch()
    try:
        return torch.func.jacrev(evaluate, chunk_size=chunk_size)(point)
    except RuntimeError as error:
        # A hand-written backward in the old style (BLOOM's gelu) cannot be vectorised: row by row.
        if "setup_context" not in str(error):
            raise
        return torch.autograd.functional.jacobian(evaluate, point)


@contextmanager
def _reference(
    call: Call, x: npt.ArrayLike, module: Any
) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """Yield the checked map and the point, under the conditions that a reference needs."""
    torch = load_torch()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mha = torch.backends.mha
    fastpath = mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.callback(mha.set_fastpath_enabled, fastpath)
        mha.set_fastpath_enabled(False)
        function, modules = _resolve(call, module)
        for m in modules:
            check_weights(m)
            for name, parameter in m.named_parameters():
                if parameter.is_inference():
                    raise WeightError(
                        f"{type(m).__name__}: parameter {name!r} was made under inference_mode and "
                        "cannot take part in differentiation; build the module outside of it"
                    )
            stack.enter_context(_evaluation(m))
        point = _point(x, modules)
        for index, block in enumerate(_blocks(call)):
            if tuple(point.shape[1:]) != (block.tokens, block.width):
                raise ShapeError(
                    f"argument x: expected shape ({block.tokens}, {block.width}) for block "
                    f"{index} ({block.system}), got {tuple(point.shape[1:])}"
                )

        def evaluate(tensor: Any) -> Any:
            result = function(tensor)
            if isinstance(result, (tuple, list)) and result:
                result = result[0]
            if not isinstance(result, torch.Tensor):
                raise ShapeError(
                    "argument call: expected a tensor, or a tuple that begins with one, as output, "
                    f"got {type(result).__name__}"
                )
            if result.shape != tensor.shape:
                raise ShapeError(
                    f"argument call: expected an output of shape {tuple(tensor.shape)}, that of "
                    f"the input, got {tuple(result.shape)}"
                )
            return result

        yield evaluate, point


def _blocks(call: Call) -> tuple[RealBlock, ...]:
    if isinstance(call, RealBlock):
        return (call,)
    return tuple(call) if isinstance(call, (list, tuple)) else ()


def _resolve(call: Call, module: Any) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return the map itself and the modules behind it."""
    torch = load_torch()
    extra = [] if module is None else [module]
    for m in extra:
        if not isinstance(m, torch.nn.Module):
            raise UnknownNodeError(
                f"argument module: expected a torch.nn.Module, got {type(m).__name__}"
            )
    if isinstance(call, torch.nn.Module):
        return _float64_call(call), [call, *extra]
    if isinstance(call, RealBlock) or (isinstance(call, (list, tuple)) and call):
        blocks = _blocks(call)
        for index, block in enumerate(blocks):
            if not isinstance(block, RealBlock):
                raise UnknownNodeError(
                    f"argument call: expected RealBlock at position {index} of the stack, "
                    f"got {type(block).__name__}"
                )

        def in_sequence(tensor: Any) -> Any:
            for block in blocks:
                tensor = block.call(tensor)
            return tensor

        return in_sequence, [*(block.module for block in blocks), *extra]
    if callable(call):
        return call, extra
    raise UnknownNodeError(
        "argument call: expected a RealBlock, a non-empty list of them, a torch.nn.Module or a "
        f"callable, got {call!r}"
    )


def _float64_call(module: Any) -> Callable[[Any], Any]:
    """Return the module itself if it is float64, else a call on float64 copies of its tensors."""
    torch = load_torch()
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    lower = {
        name: tensor.detach().to(torch.float64)
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and tensor.dtype != torch.float64
    }
    if not lower:
        return module
    return lambda tensor: torch.func.functional_call(module, lower, (tensor,))


@contextmanager
def _evaluation(module: Any) -> Iterator[None]:
    """Put a module into eval mode and give each submodule its own flag back afterwards."""
    flags = [(m, m.training) for m in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for m, training in flags:
            m.training = training


def _point(x: npt.ArrayLike, modules: Sequence[Any]) -> Any:
    torch = load_torch()
    device = next((p.device for m in modules for p in m.parameters()), None)
    if isinstance(x, torch.Tensor):
        point = x.detach().clone().to(device=device, dtype=torch.float64)
    else:
        point = torch.tensor(np.array(x, dtype=np.float64), device=device)
    if point.ndim == 2:
        point = point[None]
    if point.ndim != 3 or point.shape[0] != 1 or point.numel() == 0:
        raise ShapeError(
            f"argument x: expected shape (n, d) or (1, n, d), got {tuple(np.shape(x))}"
        )
    if not bool(torch.isfinite(point).all()):
        raise DomainError("argument x: expected finite values, got NaN or infinity")
    return point


def _finite(tensor: Any, what: str) -> FloatArray:
    array: FloatArray = tensor.cpu().numpy().astype(np.float64)
    if not np.isfinite(array).all():
        count = int((~np.isfinite(array)).sum())
        raise DomainError(
            f"argument call: expected {what} to be finite at x, {count} of {array.size} entries "
            "are not (a fully masked row, or a norm of a constant token at eps = 0)"
        )
    return array
