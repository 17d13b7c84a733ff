"""Clients of very different sizes: what they count by, equally or by their samples."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import aircomp

torch.random.manual_seed(0)

pixels, labels = load_digits(return_X_y=True)
inputs, targets = torch.tensor(pixels).float() / 16, torch.tensor(labels)
train, test = TensorDataset(inputs[:1400], targets[:1400]), TensorDataset(inputs[1400:], targets[1400:])
clients, base = aircomp.split(train, 20, "power-law", exponent=1.5)
print("samples:", *(len(client) for client in clients))
runs = {}
for weights in ("equal", "samples"):
    runs[weights] = aircomp.federate(
        torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)),
        clients,
        aircomp.Link("hybrid", aircomp.Awgn(snr_db=10.0)),
        loss=F.cross_entropy,
        test=test,
        metrics={"accuracy": aircomp.metrics.accuracy},
        base=base,
        local=aircomp.Local(learning_rate=0.1, epochs=2, batch_size=16),
        participation=aircomp.Fixed(20),
        weights=weights,
        rounds=20,
    )
    print(weights, runs[weights])
aircomp.plot(runs, "test_accuracy", "weights.svg")
