"""A frozen backbone with a head of low rank: 592 of 5,402 parameters are trained and sent."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import aircomp


class LowRank(torch.nn.Module):
    """A frozen layer plus a product of two thin matrices."""

    def __init__(self, frozen: torch.nn.Linear, rank: int):
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = torch.nn.Linear(frozen.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, frozen.out_features, bias=False)
        torch.nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(x))


torch.random.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
inputs, targets = torch.tensor(pixels).float() / 16, torch.tensor(labels)
train, test = TensorDataset(inputs[:1400], targets[:1400]), TensorDataset(inputs[1400:], targets[1400:])
backbone = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).requires_grad_(False)
model = torch.nn.Sequential(backbone, LowRank(torch.nn.Linear(64, 10), rank=8))
clients, base = aircomp.split(train, 20)
run = aircomp.federate(
    model, clients, aircomp.Link("hybrid", aircomp.Awgn(snr_db=10.0)), loss=F.cross_entropy, base=base,
    test=test, metrics={"accuracy": aircomp.metrics.accuracy}, rounds=25,
    local=aircomp.Local(optimizer="adam", learning_rate=1e-2, epochs=2),
)  # fmt: skip
print(f"{run.row['num_parameters']} of {sum(p.numel() for p in model.parameters())} parameters sent: {run}")
