"""A language model of characters on the Zen of Python: each client has its own lines, tokens are the inputs."""

import codecs
import contextlib
import io

import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset

import aircomp

with contextlib.redirect_stdout(io.StringIO()):
    import this

torch.random.manual_seed(0)
text = codecs.decode(this.s, "rot13")
letters = sorted(set(text))
tokens = torch.tensor([letters.index(letter) for letter in text])
held, test = tokens.unfold(0, 17, 2).split([360, 60])  # 16 letters, and the one after each
clients = [TensorDataset(part[:, :-1], part[:, 1:]) for part in held.tensor_split(10)]


class Characters(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.memory = torch.nn.Embedding(len(letters), 16), torch.nn.GRU(16, 48, batch_first=True)
        self.next = torch.nn.Linear(48, len(letters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.next(self.memory(self.embed(x))[0])


run = aircomp.federate(
    Characters(), clients, aircomp.Link("hybrid", aircomp.Awgn(snr_db=15.0)), rounds=15,
    loss=lambda outputs, targets: F.cross_entropy(outputs.flatten(0, 1), targets.flatten()),
    test=TensorDataset(test[:, :-1], test[:, 1:]), metrics={"accuracy": aircomp.metrics.accuracy},
    local=aircomp.Local(optimizer="adam", learning_rate=5e-3, epochs=2, batch_size=8),
)  # fmt: skip
print(f"the next letter is right {run.row['test_accuracy']:.0%} of the time, by chance {1 / len(letters):.0%}")
