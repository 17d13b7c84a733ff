"""Your own training loop: a link takes the updates of a round and returns what the base station decoded."""

import copy

import torch
from sklearn.datasets import load_digits

import aircomp

torch.random.manual_seed(0)
inputs, targets = (torch.tensor(part) for part in load_digits(return_X_y=True))
inputs = inputs.float() / 16
parts = torch.arange(1400).tensor_split(11)  # of the base station, and of ten devices
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
link = aircomp.Link("gamp", aircomp.Awgn(snr_db=10.0), tensors=model)
memory = 0


def flat(module: torch.nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


def train(rows: torch.Tensor) -> torch.Tensor:
    local = copy.deepcopy(model)
    optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
    for batch in rows.split(16):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(local(inputs[batch]), targets[batch]).backward()
        optimizer.step()
    return flat(local) - flat(model)


for _ in range(30):
    base, *updates = [train(rows) for rows in parts]
    messages = torch.stack(updates) + memory
    sent = link.send(messages, base=base)
    memory = messages - sent.delivered  # error feedback
    torch.nn.utils.vector_to_parameters(flat(model) + sent.update, model.parameters())
right = (model(inputs[1400:]).argmax(1) == targets[1400:]).float().mean()
print(f"accuracy {right:.3f}, {sent.num_active_hat:.1f} devices estimated, {sent.cost.channel_uses} channel uses")
