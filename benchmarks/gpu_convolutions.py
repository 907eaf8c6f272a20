"""ResNet18's convolutions of 20 clients at once on a GPU, in two ways: grouped, and as products of windows.

    python benchmarks/gpu_convolutions.py            each convolution: milliseconds of a forward and a backward pass
    python benchmarks/gpu_convolutions.py --rounds   whole rounds, by which convolutions are products of windows

With a stride, or from 512 channels on, cuDNN makes a grouped convolution of copies, one for each client: a sixth of the
time of ResNet18's kernels. Windows take more memory, which a compiled pass writes once. Whether they pay has not been
measured yet: this is the question, not the answer.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from gpu_round import Case
from torch import Tensor, nn

from fedamp.models.client_layers import ClientConv2d

CLIENTS, BATCH = 20, 100
LAYERS = [  # channels in and out, stride, side of the picture, how many there are in ResNet18
    *((64, 64, 1, 32, 4), (64, 128, 2, 32, 1), (128, 128, 1, 16, 3), (128, 256, 2, 16, 1)),
    *((256, 256, 1, 8, 3), (256, 512, 2, 8, 1), (512, 512, 1, 4, 3)),
]
RULES: dict[str, Callable[[ClientConv2d], bool]] = {
    "none": lambda conv: False,
    "with a stride": lambda conv: max(conv.stride) > 1,
    "512 channels": lambda conv: conv.weight.shape[2] >= 512,
    "both": lambda conv: max(conv.stride) > 1 or conv.weight.shape[2] >= 512,
}


def in_windows(conv: ClientConv2d, x: Tensor) -> Tensor:
    """Return n convolutions without bias as products of windows `(n, B H' W', h w in)` and weights."""
    n, (height, width), (down, right) = len(conv.weight), conv.kernel_size, conv.stride
    up, left = conv.padding
    places = F.pad(x, (left, left, up, up)).permute(0, 2, 3, 1)
    last, end = places.shape[1] - height + 1, places.shape[2] - width + 1
    seen = [places[:, i : last + i : down, j : end + j : right] for i in range(height) for j in range(width)]
    windows = torch.stack([torch.unflatten(part, 3, (n, -1)) for part in seen], 4)  # (B, H', W', n, h w, in)
    apart = windows.flatten(4).flatten(0, 2).transpose(0, 1)
    weight = conv.weight.permute(0, 3, 4, 2, 1).flatten(1, 3).to(x.dtype)
    out = torch.bmm(apart, weight).transpose(0, 1).flatten(1)
    return torch.unflatten(out, 0, windows.shape[:3]).permute(0, 3, 1, 2)


def client_conv(n: int, layer: nn.Conv2d) -> ClientConv2d:
    """Return a layer for n clients, each with weights of its own."""
    conv = ClientConv2d(layer)
    conv.weight = nn.Parameter(torch.randn(n, *layer.weight.shape).to(layer.weight) * 0.05)
    return conv


def milliseconds(way: Callable[[Tensor], Tensor], conv: ClientConv2d, x: Tensor, repeats: int = 20) -> float:
    """Return the median of a forward and a backward pass, by the device's clock."""
    weight, spent = conv.weight, []
    for i in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            out = way(x)
        torch.autograd.grad(out, [x, weight], torch.ones_like(out))
        end.record()
        torch.cuda.synchronize()
        spent += [begin.elapsed_time(end)] if i >= 3 else []
    return statistics.median(spent)


def layers() -> None:
    """Print each convolution's time in both ways, compiled and not."""
    print(
        f"{'in':>4s} {'out':>4s} {'stride':>6s} {'side':>4s} {'times':>5s}   grouped  windows  windows, compiled (ms)"
    )
    for inner, outer, stride, side, many in LAYERS:
        torch._dynamo.reset()
        conv = client_conv(CLIENTS, nn.Conv2d(inner, outer, 3, stride, 1, bias=False)).cuda()
        x = torch.randn(BATCH, CLIENTS * inner, side, side, device="cuda", dtype=torch.bfloat16)
        x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
        windows = lambda given, conv=conv: in_windows(conv, given)  # noqa: E731
        grouped = lambda given, conv=conv: conv._grouped(given, None)  # noqa: E731
        found = [milliseconds(way, conv, x) for way in (grouped, windows, torch.compile(windows, dynamic=False))]
        print(f"{inner:4d} {outer:4d} {stride:6d} {side:4d} {many:5d}", *(f"{each:9.3f}" for each in found), flush=True)


def rounds() -> None:
    """Print samples a second of whole rounds, compiled in bf16, by which convolutions are products of windows."""
    grouped = ClientConv2d._grouped
    for name, rule in RULES.items():

        def chosen(conv: ClientConv2d, x: Tensor, bias: Tensor | None, rule=rule) -> Tensor:  # type: ignore[no-untyped-def]
            if bias is None and conv.kernel_size == (3, 3) and rule(conv):
                return in_windows(conv, x.to(torch.bfloat16))
            return grouped(conv, x, bias)

        ClientConv2d._grouped = chosen  # type: ignore[method-assign]
        torch._dynamo.reset()
        torch.cuda.reset_peak_memory_stats()
        case = Case("resnet18, 20 clients", "bf16", True)
        rate, peak = case.samples / case.seconds() / 1e3, torch.cuda.max_memory_allocated() / 2**30
        print(f"windows for {name:14s} {rate:6.1f} k samples/s {peak:6.1f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", action="store_true")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU here, and nothing else is timed")
    rounds() if asked.rounds else layers()


if __name__ == "__main__":
    main()
