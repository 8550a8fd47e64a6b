"""The accounts of the ledger, and the events whose time they get."""

from __future__ import annotations

from flatout.probe import events as kinds

# Accounts in which the training step itself is computed.
COMPUTE_ACCOUNTS = ("forward", "loss", "backward", "optimizer", "collective")
# Top-level accounts of the ledger: id -> label.
LABELS = {
    "batch_wait": "waiting for batches",
    "h2d": "copying batches to the device",
    "forward": "forward pass",
    "loss": "loss",
    "backward": "backward pass",
    "optimizer": "optimizer",
    "device_sync": "waiting for the device",
    "checkpoint": "checkpoints",
    "validation": "validation",
    "logging": "logs and metrics",
    "epoch_boundary": "epoch boundaries",
    "compile": "compiling",
    "collective": "communication between ranks",
    "host_other": "other code in the training process",
}
ACCOUNTS = tuple(LABELS)
CODE = {id: code for code, id in enumerate(ACCOUNTS)}
# Codes beyond the accounts: pieces that end up in host_other or in the remainder.
IMPORTS = len(ACCOUNTS)
UNACCOUNTED = IMPORTS + 1

ACCOUNT_OF_KIND = {
    kinds.BATCH_WAIT: CODE["batch_wait"],
    kinds.H2D: CODE["h2d"],
    kinds.FORWARD: CODE["forward"],
    kinds.BACKWARD: CODE["backward"],
    kinds.OPTIMIZER: CODE["optimizer"],
    kinds.ZERO_GRAD: CODE["optimizer"],
    kinds.BLOCKING_READ: CODE["device_sync"],
    kinds.CHECKPOINT: CODE["checkpoint"],
    kinds.VALIDATION: CODE["validation"],
    kinds.LOG: CODE["logging"],
    kinds.ITER_START: CODE["epoch_boundary"],
    kinds.ITER_END: CODE["epoch_boundary"],
    kinds.WORKER_START: CODE["epoch_boundary"],  # the part of a wait in which new workers were not ready yet
    kinds.COMPILE: CODE["compile"],
    kinds.COLLECTIVE: CODE["collective"],
    kinds.IMPORT: IMPORTS,
}
