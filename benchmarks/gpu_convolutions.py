"""Samples a second of ResNet18 on a GPU, by which of its 3 x 3 convolutions are products of windows.

    python benchmarks/gpu_convolutions.py

20 clients, bf16, compiled. With a stride, or from 512 channels on, cuDNN makes a grouped convolution of copies, one for
each client: a sixth of the time of ResNet18's kernels. Windows take more memory, which a compiled pass writes once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpu_round import Case

from fedamp.models.client_layers import ClientConv2d

RULES: dict[str, Callable[[ClientConv2d], bool]] = {
    "none": lambda conv: False,
    "with a stride": lambda conv: max(conv.stride) > 1,
    "512 channels": lambda conv: conv.weight.shape[2] >= 512,
    "both, as it is": lambda conv: max(conv.stride) > 1 or conv.weight.shape[2] >= 512,
}


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name, rule in RULES.items():

        def pays(conv: ClientConv2d, rule: Callable[[ClientConv2d], bool] = rule) -> bool:
            return conv.kernel_size == (1, 1) or (torch.is_autocast_enabled("cuda") and rule(conv))

        ClientConv2d._windows_pay = pays  # type: ignore[method-assign]
        torch._dynamo.reset()
        torch.cuda.reset_peak_memory_stats()
        case = Case("resnet18, 20 clients", "bf16", True)
        rate, peak = case.samples / case.seconds() / 1e3, torch.cuda.max_memory_allocated() / 2**30
        print(f"windows: {name:14s} {rate:6.1f} k samples/s {peak:6.1f} GiB", flush=True)


if __name__ == "__main__":
    main()
