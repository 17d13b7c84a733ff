"""The axes of all tensors, by the names that signatures use.

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
