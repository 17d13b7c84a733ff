"""Cutting an update into fragments of equal length, taking some of them, and putting it together again (Sec. III-A)."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from aircomp.errors import ConfigError, ShapeError


def num_slots(num_params: int, fragment_length: int) -> int:
    """Return how many fragments an update of `num_params` entries fills, the last one perhaps in part.

    >>> num_slots(269_722, 20)
    13487
    """
    if fragment_length < 1:
        raise ConfigError(f"fragment_length = {fragment_length}: expected at least 1")
    if num_params < 0:
        raise ConfigError(f"num_params = {num_params}: expected a number of parameters, at least 0")
    return -(-num_params // fragment_length)


def split(update: Float[Tensor, "*batch params"], fragment_length: int) -> Float[Tensor, "*batch slots fragment"]:
    """Cut the last axis into fragments; zeros fill the last one.

    The result may share memory with `update`, as `reshape` does.
    """
    if update.ndim < 1:
        raise ShapeError("update is a single number; expected its parameters on the last axis")
    slots = num_slots(update.shape[-1], fragment_length)
    padded = torch.nn.functional.pad(update, (0, slots * fragment_length - update.shape[-1]))
    return padded.reshape(*update.shape[:-1], slots, fragment_length)


def join(fragments: Float[Tensor, "*batch slots fragment"], num_params: int) -> Float[Tensor, "*batch params"]:
    """Undo `split`: concatenate the fragments and drop the padding.

    The result may share memory with `fragments`, as `reshape` does.
    """
    if fragments.ndim < 2:
        raise ShapeError(f"fragments has shape {tuple(fragments.shape)}; expected [..., slots, fragment]")
    *batch, slots, fragment_length = fragments.shape
    if num_slots(num_params, fragment_length) != slots:
        raise ShapeError(
            f"{slots} fragments of length {fragment_length} cannot hold {num_params} parameters;"
            f" expected {num_slots(num_params, fragment_length)} fragments"
        )
    return fragments.reshape(*batch, slots * fragment_length)[..., :num_params]


def take_slots(
    rows: Shaped[Tensor, "*batch slots width"], asked: Int[Tensor, " asked"] | None
) -> Shaped[Tensor, "*batch asked width"]:
    """Return the rows of the asked slots; None means that all slots were asked for."""
    return rows if asked is None else rows[..., asked, :]


def put_slots(
    rows: Shaped[Tensor, "*batch asked width"], asked: Int[Tensor, " asked"] | None, num_slots: int
) -> Shaped[Tensor, "*batch slots width"]:
    """Put the rows of the asked slots where they belong, among zeros: `take_slots` undone."""
    if asked is None:
        return rows
    return rows.new_zeros(*rows.shape[:-2], num_slots, rows.shape[-1]).index_copy_(-2, asked, rows)
