r"""Train nomographic networks, all of them together, and measure them.

    python tools/train_nomographic.py train src/aircomp/weights/nomographic
    python tools/train_nomographic.py table            # two devices, four uses: mean, product, norm, maximum; and fragments

Numbers of a device are a common one and one of its own, Gaussian, of root mean square .4 together and clipped to ±1.
Devices have gains of one, or in half of the batches Rayleigh gains whose phases they undo. The SNR of a device alone is
uniform from -10 to 20 dB. The loss is the squared error over the variance of the function. Nothing of a test enters:
tables use draws of other seeds.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from aircomp.common.rng import generator
from aircomp.layer.nomographic import FUNCTIONS, NomographicCode, NomographicNetworks, NomographicSettings

BUNDLED = NomographicSettings(devices=13, fewest=7, uses=3, width=24, receiver_width=64)
"""The example of the package: as many uses as a round of the digital link has for a parameter."""
FRAGMENTS = NomographicSettings(shared=True, devices=13, fewest=7, inputs=20, uses=64, width=128, receiver_width=128)
"""The shared form: one network for all devices, whole fragments in the slots of the digital link."""
SPREAD = 0.4
SNR_DB = (0.0, 10.0, 20.0)


def draw(
    settings: NomographicSettings, batch: int, rng: torch.Generator, fading: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers, who sends, and gains."""
    shape = (settings.devices, batch, settings.inputs)
    share = torch.rand(1, batch, 1, generator=rng)
    common = torch.randn(1, *shape[1:], generator=rng) * share.sqrt()
    numbers = (SPREAD * (common + torch.randn(shape, generator=rng) * (1 - share).sqrt())).clamp(-1, 1)
    count = torch.randint(settings.fewest, settings.devices + 1, (1, batch, 1), generator=rng)
    # the first ones of a round: a network belongs to a place in it
    active = (torch.arange(settings.devices)[:, None, None] < count).float()
    gains = torch.randn(settings.devices, batch, 2, generator=rng).norm(dim=2, keepdim=True) / 2**0.5
    return numbers, active, gains if fading else torch.ones_like(gains)


def compute(
    networks: NomographicNetworks, drawn: tuple[Tensor, Tensor, Tensor], snr: Tensor, rng: torch.Generator
) -> Tensor:
    """Return what the receiver finds at an SNR of one device alone."""
    numbers, active, gains = drawn
    sent = networks.send(numbers, (snr * gains.square())[:, :, 0])
    total = (sent * active * gains).sum(dim=0)
    noise = torch.randn(total.shape, generator=rng) * (1 / (networks.settings.uses * snr[0])).sqrt()
    return networks.hear(total + noise)


def train(settings: NomographicSettings, steps: int, batch: int = 512, seed: int = 0) -> NomographicCode:
    """Train all networks at once."""
    networks, rng = NomographicNetworks(settings, seed=seed), generator(seed, "nomographic training")
    optimiser = torch.optim.Adam(networks.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    function, last = FUNCTIONS[settings.function], []
    for step in range(steps):
        drawn = draw(settings, batch, rng, fading=step % 2 == 1)
        snr = 10 ** (3 * torch.rand(1, batch, 1, generator=rng) - 1)
        wanted = function(*drawn[:2])
        loss = (compute(networks, drawn, snr, rng) - wanted).square().mean() / wanted.var()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(networks.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        last.append(float(loss.detach()))
    tail = last[-200:]
    return NomographicCode(
        networks, training={"steps": steps, "batch": batch, "seed": seed, "loss": sum(tail) / len(tail)}
    )


@torch.no_grad()
def error(code: NomographicCode, snr_db: float, *, fading: bool = False, batch: int = 20_000) -> tuple[float, float]:
    """Return the mean squared error on draws of its own, and the variance of the function."""
    settings, rng = code.networks.settings, generator(1, "nomographic test")
    drawn = draw(settings, batch, rng, fading)
    wanted = FUNCTIONS[settings.function](*drawn[:2])
    found = compute(code.networks, drawn, torch.full((1, batch, 1), 10 ** (snr_db / 10)), rng)
    return float((found - wanted).square().mean()), float(wanted.var())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    trained = commands.add_parser("train")
    trained.add_argument("out", type=Path)
    for command in (trained, commands.add_parser("table")):
        command.add_argument("--steps", type=int, default=4000)
    chosen = parser.parse_args()
    if chosen.command == "train":
        code = train(BUNDLED, chosen.steps)
        code.save(chosen.out)
        print({snr_db: error(code, snr_db) for snr_db in SNR_DB})
        return
    print("| function | variance | gains | " + " | ".join(f"{snr_db:g} dB" for snr_db in SNR_DB) + " |")
    print("|---|---|---|---|---|---|")
    forms = {name: NomographicSettings().changed(function=name) for name in FUNCTIONS} | {
        "mean of fragments": FRAGMENTS
    }
    for name, settings in forms.items():
        code = train(settings, chosen.steps, batch=256)
        for fading in (False, True):
            errors = [error(code, snr_db, fading=fading) for snr_db in SNR_DB]
            row = " | ".join(f"{e:.2g}" for e, _ in errors)
            print(f"| {name} | {errors[0][1]:.2g} | {'Rayleigh' if fading else 'one'} | {row} |", flush=True)


if __name__ == "__main__":
    main()
