"""Settings of torch's own libraries: threads, TF32 and the choice of convolution algorithms."""

import torch


def install(injected, watch):
    """Apply the settings immediately; a script that sets them itself overrides them."""
    if injected.get("threads") is not None:
        torch.set_num_threads(injected.get("threads"))
        injected.done("threads")
    if injected.get("tf32") is not None:
        torch.set_float32_matmul_precision("high" if injected.get("tf32") else "highest")
        torch.backends.cudnn.allow_tf32 = bool(injected.get("tf32"))
        injected.done("tf32")
    if injected.get("cudnn_benchmark") is not None:
        torch.backends.cudnn.benchmark = bool(injected.get("cudnn_benchmark"))
        injected.done("cudnn_benchmark")
