"""Settings of a training: precision, memory format, compilation. Recorded once, at its first step."""

import functools
import sys
from typing import Any

import torch

from .. import debugging
from ..recorder import REC, quietly

_noted: Any = {}  # seen before the first step: autocast, and the first module that has weights


def install():
    """Watch for the first autocast that is enabled; the method is restored once it was seen."""
    autocast = torch.autocast
    original = autocast.__enter__

    @functools.wraps(original)
    def __enter__(self):
        if getattr(self, "_enabled", True):
            if autocast.__enter__ is __enter__:
                autocast.__enter__ = original
            _noted["autocast"] = str(getattr(self, "fast_dtype", "")).replace("torch.", "") or None
        return original(self)

    autocast.__enter__ = __enter__


def model_seen(module):
    """Note the kind of weights of a root module: the first one that has any counts."""
    if "param_dtype" not in _noted:
        _noted.update(_asked(_weights_of, module) or {})


def _weights_of(module):
    weights = [weight for weight in module.parameters() if weight.dim() > 1]
    if not weights:
        return {}
    convolution = next((weight for weight in weights if weight.dim() in (4, 5)), None)
    linear = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
    return {
        "param_dtype": str(weights[0].dtype).replace("torch.", ""),
        "convolutions": convolution.dim() - 2 if convolution is not None else None,
        "channels_last": _channels_last(convolution) if convolution is not None else None,
        "outputs": linear[-1].out_features if linear else None,
        "param_bytes": sum(weight.numel() * weight.element_size() for weight in module.parameters()),
    }


@quietly
def save():
    """Write the settings once the training runs; querying the devices earlier would initialise their driver."""
    cuda = torch.cuda
    used = cuda.is_initialized()
    REC.save_process(
        device_count=cuda.device_count() if used else 0,
        device_uuid=_asked(_uuid) if used else None,
        threads=torch.get_num_threads(),
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        switch_interval_us=round(1e6 * sys.getswitchinterval()),
        tf32=_asked(_tf32),
        autocast=_noted.get("autocast"),
        param_dtype=_noted.get("param_dtype"),
        convolutions=_noted.get("convolutions"),
        channels_last=_noted.get("channels_last"),
        outputs=_noted.get("outputs"),
        param_bytes=_noted.get("param_bytes"),
        compiled=_asked(_compiled),
    )
    debugging.note()


def _asked(function, *args):
    """The result of a query that some version or kind of tensor may not support: a missing setting is no fault."""
    try:
        with torch._C.DisableTorchFunction():  # unseen by a mode of the user's
            return function(*args)
    except Exception:
        return None


def _channels_last(weight):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return weight.is_contiguous(memory_format=formats[weight.dim()]) and not weight.is_contiguous()


def _compiled():
    """True if torch.compile has compiled anything, by its own count of frames."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return bool(dynamo is not None and dynamo.counters["frames"]["total"])


def _uuid():
    """The current GPU's UUID, as in the driver's list of GPUs; None in older versions of torch."""
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return "GPU-%s" % uuid if uuid is not None else None


def _tf32():
    """True if float32 matrix products may use TF32, None if unknown; newer versions of torch have their own setting."""
    matmul = torch.backends.cuda.matmul
    try:
        return matmul.fp32_precision == "tf32"
    except (AttributeError, AssertionError):  # an older torch answers with the latter
        pass
    try:
        return bool(matmul.allow_tf32)
    except (RuntimeError, AttributeError):
        return None
