"""Federated digits over the air, under Flower. Two lines make it so: the mod of the client, the strategy around FedAvg.

Same seed, same bits as `aircomp simulate digits --uplink gamp --rounds 3 --devices.total 2
--participation.kind fixed --participation.number 2`. Put your own model, data and training where it says "yours".
"""

from functools import lru_cache

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import save_file

import aircomp
from aircomp.adapters.flower import UplinkStrategy, uplink_mod
from aircomp.channel import make_channel
from aircomp.common import rng
from aircomp.data.images import load
from aircomp.data.partition import split
from aircomp.engines.local import one_thread
from aircomp.engines.trainer import BASE_STATION, Task, Trainer
from aircomp.fl import models
from aircomp.fl.experiment import load_experiment
from aircomp.fl.simulate import evaluate
from aircomp.uplinks.base import UplinkContext

DEVICES = 2
SETTINGS = load_experiment("digits")

client = ClientApp(mods=[uplink_mod])  # line one
server = ServerApp()


@lru_cache
def trainer() -> Trainer:
    """Yours: the model and the data, all holders' here because digits are small."""
    data = load("digits", None)
    model = models.build(SETTINGS.model, data.num_classes, 1, rng=rng.generator(SETTINGS.seed, "model"))
    holders = rng.generator(SETTINGS.seed, "partition")
    partition = split(data.train_labels, DEVICES, SETTINGS.partition, rng=holders)
    return Trainer(model, data, partition, SETTINGS.local, seed=SETTINGS.seed)


def train(arrays: ArrayRecord, server_round: int, holder: int) -> tuple[ArrayRecord, float]:
    """Yours: train the arrays on one holder's data; devices and the base station do the same."""
    model = trainer().model
    model.module.load_state_dict(arrays.to_torch_state_dict())
    with one_thread():
        result = trainer().run(Task(server_round - 1, holder), model.weights.clone(), model.read_buffers())
    return ArrayRecord(model.module.state_dict()), result.loss


@client.train()
def train_device(message: Message, context: Context) -> Message:
    server_round = int(message.content["config"]["server-round"])
    device = int(context.node_config["partition-id"])
    arrays, loss = train(message.content["arrays"], server_round, device)
    metrics = MetricRecord({"num-examples": len(trainer().partition.devices[device]), "loss": loss})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def test(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    model = trainer().model.module
    model.load_state_dict(arrays.to_torch_state_dict())
    accuracy, loss = evaluate(model, trainer().data)
    return MetricRecord({"test_accuracy": accuracy, "test_loss": loss})


def make_strategy(uplink: str = "gamp") -> UplinkStrategy:
    settings = SETTINGS.changed(uplink=uplink).uplink
    layers = trainer().model.slot_layers(settings.quantize.fragment_length)
    return UplinkStrategy(  # line two
        FedAvg(fraction_evaluate=0.0, min_train_nodes=DEVICES, min_available_nodes=DEVICES),
        aircomp.make_uplink(settings, UplinkContext(slot_layers=layers, seed=SETTINGS.seed)),
        lambda server_round, arrays: train(arrays, server_round, BASE_STATION)[0],
        channel=make_channel(SETTINGS.channel, SETTINGS.power),
        seed=SETTINGS.seed,
    )


@server.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    initial = ArrayRecord(trainer().model.module.state_dict())
    rounds = int(config.get("num-server-rounds", 3))
    strategy = make_strategy(str(config.get("uplink", "gamp")))
    result = strategy.start(grid, initial, num_rounds=rounds, evaluate_fn=test)
    if path := str(config.get("save-to", "")):
        save_file(result.arrays.to_torch_state_dict(), path)
