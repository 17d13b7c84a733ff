import importlib
import pkgutil
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler

import pytest

import aircomp
from aircomp.common.settings import SettingsError
from aircomp.errors import AirCompError, ConfigError
from aircomp.federation.experiment import Experiment


def every_kind(kind: type[AirCompError] = AirCompError) -> list[type[AirCompError]]:
    for module in pkgutil.walk_packages(aircomp.__path__, "aircomp."):
        if not re.search("__main__|adapters|flower", module.name):  # errors are defined elsewhere
            importlib.import_module(module.name)
    return [kind, *(below for child in kind.__subclasses__() for below in every_kind(child))]


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_every_error_travels_between_processes(kind):
    error = kind.__new__(kind, "what was given")
    error.args, error.detail = ("what was given",), {"round": 3}
    again = ForkingPickler.loads(ForkingPickler.dumps(error))
    assert (type(again), str(again), vars(again)) == (kind, "what was given", {"detail": {"round": 3}})


def test_an_error_with_arguments_of_its_own_travels():
    with pytest.raises(SettingsError) as caught:
        Experiment(rounds=-1)
    again = ForkingPickler.loads(ForkingPickler.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.problems == caught.value.problems


def refuse() -> None:
    Experiment(rounds=-1)


@pytest.mark.engines
def test_wrong_settings_in_a_worker_reach_the_parent():
    with (
        ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool,
        pytest.raises(ConfigError, match="rounds = -1"),
    ):
        pool.submit(refuse).result(timeout=30)


def test_a_message_is_one_line_of_bearable_length():
    assert str(ConfigError("given\n  [[1, 2],\n [3]]: expected one")) == "given [[1, 2], [3]]: expected one"
    long = str(ConfigError(f"given {'x' * 10_000}: expected one"))
    assert long.startswith("given x")
    assert long.endswith("x: expected one")
    assert len(long) < 1100
