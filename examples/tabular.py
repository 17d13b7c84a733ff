"""Classify a table: breast cancer from scikit-learn, 20 clients, updates over the air at 10 dB."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from torch.utils.data import TensorDataset

import aircomp

table, labels = load_breast_cancer(return_X_y=True)
torch.random.manual_seed(0)
rows = torch.randperm(len(labels))
inputs, targets = torch.tensor(table, dtype=torch.float32)[rows], torch.tensor(labels)[rows]
train, test = TensorDataset(inputs[:450], targets[:450]), TensorDataset(inputs[450:], targets[450:])


class Standardize(torch.nn.Module):
    """Part of the model, so that the trained model takes raw rows."""

    def __init__(self, known: torch.Tensor):
        super().__init__()
        self.mean = torch.nn.Parameter(known.mean(0), requires_grad=False)
        self.std = torch.nn.Parameter(known.std(0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.std


clients, base = aircomp.split(train, 20, "dirichlet", alpha=1.0)
known = torch.stack([row for row, _ in base])  # the base station's own rows set the scale
model = torch.nn.Sequential(Standardize(known), torch.nn.Linear(30, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
link = aircomp.Link("hybrid", aircomp.Awgn(snr_db=10.0))
metrics = {"accuracy": aircomp.metrics.accuracy}
local = aircomp.Local(learning_rate=0.05, steps=10, batch_size=16)
run = aircomp.federate(
    model, clients, link, loss=F.cross_entropy, test=test, metrics=metrics, base=base, local=local, rounds=20
)
print(f"{run}, raw rows: {aircomp.metrics.accuracy(run.model(inputs[450:]), targets[450:]):.3f}")
