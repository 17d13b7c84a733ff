r"""Two real channel uses are one complex use: $c[m] = c_{re}[2m] + j\,c_{re}[2m+1]$.

Schemes and receivers count real uses. A channel with complex gains packs what it carries and unpacks what the antennas
heard; a receiver that wants complex numbers packs it again. An odd use at the end of a slot has nothing beside it.
"""

import torch
from jaxtyping import Complex, Inexact
from torch import Tensor


def pack(values: Inexact[Tensor, "*batch uses"]) -> Complex[Tensor, "*batch pairs"]:
    """Return pairs of neighbouring uses as complex numbers; complex values pair up as well, linearly.

    >>> pack(torch.tensor([1.0, 2.0, 3.0]))
    tensor([1.+2.j, 3.+0.j])
    """
    if values.shape[-1] % 2:
        values = torch.nn.functional.pad(values, (0, 1))
    even, odd = values[..., 0::2], values[..., 1::2]
    return even + 1j * odd if values.is_complex() else torch.complex(even.contiguous(), odd.contiguous())


def unpack(pairs: Complex[Tensor, "*batch pairs"], uses: int) -> Inexact[Tensor, "*batch uses"]:
    """Return complex numbers as `uses` real ones: `pack` undone.

    >>> unpack(torch.tensor([1 + 2j, 3 + 0j]), 3)
    tensor([1., 2., 3.])
    """
    return torch.view_as_real(pairs).flatten(-2)[..., :uses]
