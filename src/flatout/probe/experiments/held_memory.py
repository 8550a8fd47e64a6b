"""Memory of the GPU that tensors took, and that PyTorch held for them, before experiments change it."""

import torch

from ..recorder import REC, quietly


@quietly
def save():
    """Note the most of both, once."""
    cuda = torch.cuda
    if "memory_allocated" not in REC.process and cuda.is_initialized():
        REC.save_process(memory_allocated=cuda.max_memory_allocated(), memory_reserved=cuda.max_memory_reserved())
