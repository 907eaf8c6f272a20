import torch

# Two threads or one, the tests' models are too small to gain by more.
torch.set_num_threads(1)
