"""The axes, their names, and the tensors that travel between stages.

| axis        | paper | meaning                                                         |
|-------------|-------|-----------------------------------------------------------------|
| `devices`   | K_a   | devices that transmit in this round                             |
| `params`    | W     | parameters of the global model, flattened                       |
| `slots`     | J     | fragments of one update; each occupies one transmission slot    |
| `fragment`  | d     | entries of one fragment                                         |
| `codewords` | n     | size of the quantisation codebook and of the random-access one  |
| `uses`      | l     | real channel uses of one slot                                   |

Codebooks are stored one codeword per **row** (the paper writes columns): summed codewords are
`counts @ codebook`.
"""

from jaxtyping import Float, Int
from torch import Tensor

Messages = Float[Tensor, "devices params"]
Fragments = Float[Tensor, "slots fragment"]
Indices = Int[Tensor, "devices slots"]
QuantCodebook = Float[Tensor, "codewords fragment"]
Codebook = Float[Tensor, "codewords uses"]
Popularity = Float[Tensor, " codewords"]
Counts = Int[Tensor, "slots codewords"]
SoftCounts = Float[Tensor, "slots codewords"]
Received = Float[Tensor, "slots uses"]
