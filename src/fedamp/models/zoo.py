"""Networks, by name: a builder takes the shape of one sample and the number of outputs, and returns an nn.Module.

Adding one takes a function and a line in MODELS; a user's own is named `module:function` and needs no line.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from fedamp import checks
from fedamp.errors import UserError
from fedamp.fields import About


def logistic(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return multinomial logistic regression: one linear layer, whose outputs are the logits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(size_of(input_shape), num_outputs))


def mlp(
    input_shape: Sequence[int],
    num_outputs: int,
    hidden: Annotated[int, About("Units of the hidden layer.", range="1 or more", source="ours")] = 64,
) -> nn.Module:
    """Return a perceptron with one hidden layer of `hidden` rectified units."""
    checks.count("hidden", hidden)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(size_of(input_shape), hidden), nn.ReLU(), nn.Linear(hidden, num_outputs)
    )


def cnn_small(
    input_shape: Sequence[int],
    num_outputs: int,
    norm: Annotated[
        bool, About("Whether a BatchNorm follows each convolution.", range="true or false", source="ours")
    ] = False,
) -> nn.Module:
    """Return a small convolutional net for small pictures: 3x3 convolutions of 16 and 32 channels, 64 units."""
    checks.truth("norm", norm)
    entry, (channels, height, width) = _picture("cnn-small", input_shape, smallest=4)

    def convolution(channels: int, width: int) -> list[nn.Module]:
        # No bias before BatchNorm, which would subtract it again.
        conv = nn.Conv2d(channels, width, 3, padding=1, bias=not norm)
        return [conv, nn.BatchNorm2d(width)] if norm else [conv]

    return nn.Sequential(
        *entry,
        *convolution(channels, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        *convolution(16, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, num_outputs),
    )


def cnn(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return the convolutional net of federated averaging: 5x5 convolutions of 32 and 64 channels, 512 units.

    It has 1,663,370 parameters for pictures of 28 x 28 and 10 outputs, as in the paper.

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.
    """
    entry, (channels, height, width) = _picture("cnn", input_shape, smallest=4)
    return nn.Sequential(
        *entry,
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, num_outputs),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a way around them: relu(f(x) + x), x projected where the shape changes."""

    side_by_side = True  # for `side_by_side.StackedModule`: besides calling its layers it works element by element

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.norm2 = nn.BatchNorm2d(width)
        self.around: nn.Module = nn.Identity()
        if stride > 1 or channels != width:
            self.around = nn.Sequential(_conv(channels, width, 1, stride), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, `(N, width, height / stride, ...)`."""
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.around(x))


def resnet18(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return ResNet-18 with the stem for small pictures: a 3x3 convolution of stride 1, and no max pool.

    It has 11,220,132 parameters for pictures of 3 x 32 x 32 and 100 outputs. At 8 x 8 the last blocks see one
    pixel, so BatchNorm can't train there on a batch of one.

    Reference: He et al., Deep Residual Learning for Image Recognition, 2016.
    """
    entry, (channels, _, _) = _picture("resnet18", input_shape, smallest=8)
    layers = [*entry, _conv(channels, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(before, width, stride), BasicBlock(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_outputs))


def _conv(channels: int, width: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    # No bias: the BatchNorm that follows would subtract it again.
    conv = nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def size_of(input_shape: Sequence[int]) -> int:
    """Return how many values a sample has."""
    if not input_shape or any(not isinstance(length, int) or length < 1 for length in input_shape):
        raise UserError(
            f"input_shape is {input_shape!r}; expected the shape of one sample, such as (8, 8): "
            "one axis or more, each a whole number of 1 or more"
        )
    return math.prod(input_shape)


def _picture(name: str, input_shape: Sequence[int], smallest: int) -> tuple[list[nn.Module], tuple[int, int, int]]:
    """Return the layers that give a grey picture its channel axis, and the picture's (channels, height, width)."""
    size_of(input_shape)
    shape = tuple(input_shape)
    if len(shape) not in (2, 3):
        raise UserError(
            f"{name} can't take samples of shape {shape}: expected pictures, (height, width) or "
            "(channels, height, width); choose mlp or logistic for other data"
        )
    height, width = shape[-2:]
    if min(height, width) < smallest:
        raise UserError(
            f"{name} can't take pictures of shape {shape}: the smallest allowed is {smallest} x {smallest}; "
            "choose mlp or logistic, or enlarge the pictures"
        )
    if len(shape) == 2:
        return [nn.Unflatten(1, (1, height))], (1, height, width)
    return [], (shape[0], height, width)


Builder = Callable[..., nn.Module]

MODELS: dict[str, Builder] = {
    "mlp": mlp,
    "logistic": logistic,
    "cnn-small": cnn_small,
    "cnn": cnn,
    "resnet18": resnet18,
}
