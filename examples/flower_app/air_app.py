"""A regression under Flower, in plain torch: the mod of the client and the strategy around FedAvg send it over the air."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.datasets import load_diabetes

import aircomp

inputs, targets = (torch.tensor(part).float() for part in load_diabetes(return_X_y=True))
inputs, targets = 20 * inputs, targets[:, None] / 100
own, *parts, rest = torch.arange(len(targets)).split((50, 200, 90, 102))  # base station, two clients, test
client, server = ClientApp(mods=[aircomp.uplink_mod]), ServerApp()


def train(arrays: ArrayRecord, rows: torch.Tensor) -> ArrayRecord:
    model = torch.nn.Linear(10, 1)
    model.load_state_dict(arrays.to_torch_state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows]).backward()
        optimizer.step()
    return ArrayRecord(model.state_dict())


@client.train()
def train_client(message: Message, context: Context) -> Message:
    rows = parts[int(context.node_config["partition-id"])]
    arrays = train(message.content["arrays"], rows)
    return Message(RecordDict({"arrays": arrays, "of": MetricRecord({"num-examples": len(rows)})}), reply_to=message)


def test(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    weight, bias = arrays.to_torch_state_dict().values()
    return MetricRecord({"r2": aircomp.metrics.r2(inputs[rest] @ weight.T + bias, targets[rest])})


@server.main()
def main(grid: Grid, context: Context) -> None:
    flower, scheme = FedAvg(fraction_evaluate=0.0, min_available_nodes=2), aircomp.make_scheme("hybrid")
    strategy = aircomp.UplinkStrategy(flower, scheme, lambda _, arrays: train(arrays, own), channel=aircomp.Awgn(10.0))
    start = ArrayRecord(torch.nn.Linear(10, 1).state_dict())
    strategy.start(grid, start, num_rounds=int(context.run_config["num-server-rounds"]), evaluate_fn=test)
