import pytest
import torch

from aircomp.studies.results import jobs_of
from aircomp.studies.runs import Disturbance
from aircomp.studies.scales import SCALES

DESKTOP = SCALES["desktop"]


def test_runs_from_scratch_are_the_papers_at_half_resolution():
    jobs = jobs_of("from_scratch", DESKTOP, [0, 1])
    runs = [("perfect", None), ("amp-da", 0.0), ("amp-da-net", 0.0)]
    assert [(row["uplink"], row.get("snr_db")) for row, _ in jobs] == runs  # of one seed
    for _, job in jobs:
        assert job.needs == (), "no start, and the package's layer"
        assert job.params["preset"] == "cifar10"
        settings = job.params["settings"]
        assert (settings["model.stem_stride"], settings["rounds"]) == (2, 150)
        assert job.params["tested"] == list(range(5, 151, 5))


def test_the_runs_of_table_one_are_shared_with_the_look_at_buffers():
    keys = {name: {job.key for _, job in jobs_of(name, DESKTOP, [0])} for name in ("fed_accuracy", "batch_norm")}
    assert len(keys["fed_accuracy"]) == 1 + 2 * 6 + 2
    assert keys["fed_accuracy"] < keys["batch_norm"]


def test_a_start_is_made_once_for_all_runs():
    jobs = jobs_of("batch_norm", DESKTOP, range(3))
    assert len({need.key for _, job in jobs for need in job.needs if need.kind == "central"}) == 1


def test_a_disturbance_has_the_length_and_the_energy_that_it_says():
    update = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    disturbed = Disturbance(seed=1, length=0.5, noise=4.0)
    first, second = disturbed(update), disturbed(update)
    energy = update.square().sum()
    for found in (first, second):
        noise = found - 0.5 * update
        assert float(noise.square().sum() / energy) == pytest.approx(4.0, rel=1e-4)  # scaled to it
        # independent directions in 20,000 dimensions: their cosine has a deviation of 1/141
        assert abs(float(noise @ update / (noise.norm() * update.norm()))) < 5 / 141
    assert not torch.equal(first, second)
    assert torch.equal(first, Disturbance(seed=1, length=0.5, noise=4.0)(update))
