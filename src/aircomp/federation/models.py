"""The models that federated runs train: the paper's two, narrow versions of both, and a small CNN for digits and MNIST.

Any `nn.Module` that maps images to logits can take their place.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from aircomp.common.memory import check_memory
from aircomp.federation.settings import ModelSettings, Norm, ResNetSettings, VggSettings

USUAL_WIDTH = {"digits-cnn": 16, "mnist-cnn": 16, "resnet": 16, "vgg": 32}
"""Width of each model as published (ours for digits and MNIST)."""


class Normalize(nn.Module):
    """A model's first layer: takes the mean pixel off and divides by the deviation, so that a model takes raw images.

    Both are frozen parameters: they are saved with the model, and not sent. Pixels come out with their channels last, as the
    convolutions of this package are faster with.

    Args:
        mean: Of each channel, on a scale of 0 to 1 for images of bytes.
        std: Likewise.
    """

    def __init__(self, mean: Float[Tensor, " channels"], std: Float[Tensor, " channels"]):
        super().__init__()
        self.mean = nn.Parameter(mean.clone(), requires_grad=False)
        self.std = nn.Parameter(std.clone(), requires_grad=False)

    def forward(
        self, images: Shaped[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch channels height width"]:
        """Return the images normalised."""
        scale = 1 / self.std[:, None, None]
        offset = -self.mean[:, None, None] * scale
        if images.dtype == torch.uint8:
            scale = scale / 255
        normalized = torch.addcmul(offset, images.to(self.mean.dtype), scale)
        return normalized.contiguous(memory_format=torch.channels_last)


class Normalized(nn.Module):
    """A user's own model behind the normalisation of a preset's images."""

    def __init__(self, normalize: Normalize, model: nn.Module):
        super().__init__()
        self.normalize, self.model = normalize, model

    def forward(self, images: Shaped[Tensor, "batch channels height width"]) -> Any:
        """Return what the model does; its pixels lie side by side, so that it may flatten them by a view."""
        return self.model(self.normalize(images).contiguous())


def normalization(kind: Norm, channels: int) -> nn.Module:
    """Return the normalisation layer for `channels` channels; groups of four or eight, as divides."""
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    groups = next(g for g in (8, 4, 2, 1) if channels % g == 0)
    return nn.GroupNorm(groups, channels)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut without parameters (subsample, pad channels with zeros)."""

    copies = 1
    """Copies of the model whose channels lie side by side; see `aircomp.device.together`."""

    def __init__(self, channels_in: int, channels: int, stride: int, norm: Norm):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = normalization(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = normalization(norm, channels)
        self.stride, self.padding = stride, channels - channels_in

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch channels2 h2 w2"]:
        """Return the block's output."""
        y = F.relu_(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.padding:
            x = pad_channels(x, self.padding, self.copies)
        return F.relu_(y.add_(x))  # in place: no gradient needs what a norm puts out


def pad_channels(
    x: Float[Tensor, "batch channels height width"], padding: int, copies: int
) -> Float[Tensor, "batch channels2 height width"]:
    """Add `padding` channels of zeros after those of each copy of the model."""
    if copies == 1:
        return F.pad(x, (0, 0, 0, 0, 0, padding))
    pixels = x.permute(0, 2, 3, 1).unflatten(3, (copies, -1))  # channels last, as they lie in memory
    return F.pad(pixels, (0, padding)).flatten(3).permute(0, 3, 1, 2)


class ResNet(nn.Module):
    """The paper's ResNet: a 3×3 convolution, three stages of three basic blocks, average pooling, linear.

    With the defaults it has exactly 269,722 parameters (Sec. III-E, Dataset Collection).
    """

    copies = 1

    def __init__(
        self,
        num_classes: int = 10,
        channels_in: int = 3,
        width: int = 16,
        blocks: int = 3,
        stem_stride: int = 1,
        norm: Norm = "batch",
    ):
        super().__init__()
        self.normalize: nn.Module = nn.Identity()
        self.conv = nn.Conv2d(channels_in, width, 3, stem_stride, 1, bias=False)
        self.norm = normalization(norm, width)
        widths = [width, width, 2 * width, 4 * width]
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(widths[stage] if block == 0 else widths[stage + 1], widths[stage + 1], stride, norm)
                for stage in range(3)
                for block in range(blocks)
                for stride in [2 if stage > 0 and block == 0 else 1]
            )
        )
        self.linear = nn.Linear(4 * width, num_classes)

    def forward(self, x: Shaped[Tensor, "batch channels height width"]) -> Float[Tensor, "batch classes"]:
        """Return the logits."""
        x = F.relu_(self.norm(self.conv(self.normalize(x))))
        return self.linear(self.blocks(x).mean(dim=(2, 3)))


class Vgg(nn.Module):
    """The paper's VGG-style network: three blocks of two 3×3 convolutions, max pooling between (Sec. V-B).

    288,746 parameters with batch normalisation against the paper's 287,626 (0.4 % more; the paper does not say
    where its biases and norms are).
    """

    copies = 1

    def __init__(self, num_classes: int = 10, channels_in: int = 3, width: int = 32, norm: Norm = "batch"):
        super().__init__()
        self.normalize: nn.Module = nn.Identity()
        layers: list[nn.Module] = []
        channels = channels_in
        for stage, wide in enumerate([width, 2 * width, 4 * width]):
            if stage > 0:
                layers.append(nn.MaxPool2d(2))
            for _ in range(2):
                layers += [
                    nn.Conv2d(channels, wide, 3, 1, 1, bias=False),
                    normalization(norm, wide),
                    nn.ReLU(inplace=True),
                ]
                channels = wide
        self.features = nn.Sequential(*layers)
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, x: Shaped[Tensor, "batch channels height width"]) -> Float[Tensor, "batch classes"]:
        """Return the logits."""
        return self.linear(self.features(self.normalize(x)).mean(dim=(2, 3)))


class SmallCnn(nn.Module):
    """Two 3×3 convolutions with max pooling and a linear layer, without buffers.

    Args:
        num_classes: Its outputs.
        channels_in: Of its images.
        width: Channels of the first convolution; the second has twice as many.
        side: What the second pooling leaves of an image, each way: 2 of 8 pixels (digits), 7 of 28 (MNIST).
    """

    copies = 1

    def __init__(self, num_classes: int = 10, channels_in: int = 1, width: int = 16, side: int = 2):
        super().__init__()
        self.normalize: nn.Module = nn.Identity()
        self.conv1 = nn.Conv2d(channels_in, width, 3, 1, 1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, 1, 1)
        self.linear = nn.Linear(2 * width * side**2, num_classes)
        self.side = side

    def forward(self, x: Shaped[Tensor, "batch channels height width"]) -> Float[Tensor, "batch classes"]:
        """Return the logits."""
        x = F.max_pool2d(F.relu(self.conv1(self.normalize(x))), 2)
        x = F.relu(self.conv2(x))
        return self.linear(F.adaptive_max_pool2d(x, self.side).flatten(1))


def build(
    settings: ModelSettings,
    num_classes: int,
    channels_in: int,
    *,
    rng: torch.Generator,
    normalize: Normalize | None = None,
) -> nn.Module:
    """Build a model and initialise it from `rng` (PyTorch's default distributions, but seeded).

    Args:
        settings: Which one.
        num_classes: Its outputs.
        channels_in: Of its images.
        rng: Draws the weights.
        normalize: Its first layer; without one it takes images that are normalised.
    """
    width = settings.width or USUAL_WIDTH[settings.name]
    shape: Any = {"num_classes": num_classes, "channels_in": channels_in, "width": width}
    builder: Callable[[], nn.Module]
    match settings:
        case ResNetSettings():
            own = {"blocks": settings.blocks, "stem_stride": settings.stem_stride, "norm": settings.norm}
            builder = partial(ResNet, **shape, **own)
        case VggSettings():
            builder = partial(Vgg, **shape, norm=settings.norm)
        case _:
            builder = partial(SmallCnn, **shape, side=7 if settings.name == "mnist-cnn" else 2)
    with torch.device("meta"):  # costs nothing, however large
        size = sum(parameter.numel() for parameter in builder().parameters())
    check_memory({"the model and its gradient (model.width, model.blocks)": 2 * 4 * size})
    model = builder()
    initialize(model, rng=rng)
    if normalize is not None:
        model.normalize = normalize
    return model


def initialize(model: nn.Module, *, rng: torch.Generator) -> None:
    """Draw every convolution and linear layer anew from `rng`: Kaiming-uniform weights, uniform biases."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            bound = fan_in**-0.5
            gain = (6**0.5) if isinstance(module, nn.Conv2d) else 1.0  # ReLU follows every convolution
            nn.init.uniform_(module.weight, -gain * bound, gain * bound, generator=rng)
            if module.bias is not None:
                nn.init.uniform_(module.bias, -bound, bound, generator=rng)
