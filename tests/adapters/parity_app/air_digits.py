"""The training of `aircomp simulate digits` under Flower, for tests: same seed, same bits."""

from functools import lru_cache

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import save_file
from torch import nn

import aircomp
from aircomp.adapters.flower import UplinkStrategy, uplink_mod
from aircomp.channel.base import make_channel
from aircomp.common.threads import one_thread
from aircomp.data.images import load
from aircomp.engines.trainer import BASE_STATION, Task, Trainer
from aircomp.federation.evaluate import evaluate
from aircomp.federation.experiment import load_experiment
from aircomp.federation.simulate import build_model, holders_of, partition_of
from aircomp.schemes.base import SchemeContext

DEVICES = 2
SETTINGS = load_experiment("digits").changed(
    **{"devices.total": DEVICES, "participation.high": DEVICES, "participation.low": 0}
)

client = ClientApp(mods=[uplink_mod])
server = ServerApp()


@lru_cache
def trainer() -> Trainer:
    """Return what trains, with the data of all holders."""
    data = load("digits", None)
    holders = holders_of(SETTINGS, data, partition_of(SETTINGS, data))
    return Trainer(build_model(SETTINGS, data), holders, SETTINGS.local, seed=SETTINGS.seed)


def arrays_of(model: nn.Module) -> ArrayRecord:
    """Return the arrays that devices train: all but the normalisation."""
    return ArrayRecord({k: v for k, v in model.state_dict().items() if not k.startswith("normalize.")})


def train(arrays: ArrayRecord, server_round: int, holder: int) -> tuple[ArrayRecord, float]:
    """Train the arrays on one holder's data; devices and the base station do the same."""
    model = trainer().model
    model.module.load_state_dict(arrays.to_torch_state_dict(), strict=False)
    with one_thread():
        result = trainer().run(Task(server_round - 1, holder), model.weights.clone(), model.read_buffers())
    return arrays_of(model.module), result.loss


@client.train()
def train_device(message: Message, context: Context) -> Message:
    server_round = int(message.content["config"]["server-round"])
    device = int(context.node_config["partition-id"])
    arrays, loss = train(message.content["arrays"], server_round, device)
    metrics = MetricRecord({"num-examples": len(trainer().holders[device]), "loss": loss})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def test(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    model = trainer().model.module
    model.load_state_dict(arrays.to_torch_state_dict(), strict=False)
    accuracy, loss = evaluate(model, load("digits", None))
    return MetricRecord({"test_accuracy": accuracy, "test_loss": loss})


def make_strategy(uplink: str = "gamp") -> UplinkStrategy:
    settings = SETTINGS.changed(uplink=uplink)
    layers = trainer().model.slot_layers(settings.fragment_length)
    return UplinkStrategy(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=DEVICES, min_available_nodes=DEVICES),
        aircomp.make_scheme(settings.uplink, SchemeContext(slot_layers=layers, seed=SETTINGS.seed)),
        lambda server_round, arrays: train(arrays, server_round, BASE_STATION)[0],
        channel=make_channel(SETTINGS.channel, SETTINGS.power),
        seed=SETTINGS.seed,
    )


@server.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    initial = arrays_of(trainer().model.module)
    rounds = int(config.get("num-server-rounds", 3))
    strategy = make_strategy(str(config.get("uplink", "gamp")))
    result = strategy.start(grid, initial, num_rounds=rounds, evaluate_fn=test)
    if path := str(config.get("save-to", "")):
        save_file(result.arrays.to_torch_state_dict(), path)
