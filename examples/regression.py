"""Regression on a table: scikit-learn's diabetes, AdamW on every client, R² and mean error of each round, a figure."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_diabetes
from torch.utils.data import TensorDataset

import aircomp

torch.random.manual_seed(0)
table, progress = load_diabetes(return_X_y=True)  # columns of norm one; progress from 25 to 346
inputs, targets = 20 * torch.tensor(table).float(), torch.tensor(progress).float()[:, None] / 100
train, test = TensorDataset(inputs[:350], targets[:350]), TensorDataset(inputs[350:], targets[350:])
clients, base = aircomp.split(train, 20)
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
link = aircomp.Link("hybrid", aircomp.Awgn(snr_db=10.0))
run = aircomp.federate(
    model,
    clients,
    link,
    loss=F.mse_loss,
    test=test,
    metrics={"r2": aircomp.metrics.r2, "mae": aircomp.metrics.mean_absolute_error},
    base=base,
    local=aircomp.Local(optimizer="adamw", learning_rate=3e-3, steps=10, batch_size=8, decay=0.97),
    participation=aircomp.Uniform(7, 13),
    rounds=30,
)
run.plot("test_r2", "regression.svg")
print(f"R² {run.row['test_r2']:.2f}, mean error {100 * run.row['test_mae']:.0f}, in regression.svg round by round")
