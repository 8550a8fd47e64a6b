"""A few steps of one of timm's networks, and the most memory that they took: network.py NAME BATCH_SIZE SIZE."""

import json
import sys

import timm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    name, batch_size, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images = torch.randn(1, 3, size, size).expand(8 * batch_size, 3, size, size)
    data = TensorDataset(images, torch.zeros(8 * batch_size, dtype=torch.long))
    for step, (x, y) in enumerate(DataLoader(data, batch_size=batch_size)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to("cuda")), y.to("cuda")).backward()
        optimizer.step()
        if step == 3:
            break
    print("RESULT " + json.dumps({"peak_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
