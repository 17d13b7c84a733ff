"""Write what devices send as IQ samples, add them up as the air would, and decode the recording."""

import torch

import aircomp

DEVICES, SLOTS = 10, 400
rng = torch.Generator().manual_seed(0)
layer = aircomp.CommunicationLayer.load()
popularity = torch.arange(1, len(layer.codebook) + 1).float().reciprocal()
choices = torch.multinomial(popularity.expand(DEVICES, -1), SLOTS, replacement=True, generator=rng)

for device, chosen in enumerate(choices):  # one file a device: what its radio plays
    aircomp.write_sigmf(f"iq/device_{device:03d}", layer.codebook[chosen], sample_rate=1e6)

# the air. With radios, this is what the base station records: aligned in time, phase and power
heard = sum(aircomp.read_sigmf(f"iq/device_{device:03d}").samples for device in range(DEVICES))
heard = heard + 0.1 * torch.randn(heard.shape, generator=rng)
aircomp.write_sigmf("iq/received", heard, about={"popularity": popularity.tolist()})

recording = aircomp.read_sigmf("iq/received")
decoded = layer.decode(recording.samples, torch.tensor(recording.about["popularity"]))
counts = torch.nn.functional.one_hot(choices.T, len(layer.codebook)).sum(dim=1)
wrong = (decoded.counts - counts).abs().sum(dim=1) / DEVICES
print(f"{decoded.num_active} devices, count accuracy {1 - wrong.clamp(max=1).mean():.3f}")
