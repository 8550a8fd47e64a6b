"""Loops of many shapes: which events they leave."""

from __future__ import annotations

import pytest

from flatout.probe import events
from tests.probe.recorded import run_probed

pytestmark = pytest.mark.slow


def test_a_loader_built_anew_each_epoch_is_one_loader(tmp_path):
    source = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data = TensorDataset(torch.randn(16, 4))
        for epoch in range(3):
            for (x,) in DataLoader(data, 4):
                net(x).sum().backward()
                optimizer.step()
        def passes(loader):
            for (x,) in loader:
                net(x).sum().backward()
        first, second = DataLoader(data, 4), DataLoader(data, 4)
        passes(first)
        passes(second)
        passes(first)
    """
    probed = run_probed(tmp_path, source)
    waits = probed.main.of_kinds(events.BATCH_WAIT)["arg"].tolist()
    assert len(waits) == 24, probed.err
    assert len(set(waits[:12])) == 1
    assert len(set(waits[12:])) == 2
    assert waits[12:16] == waits[20:]
    starts = probed.main.of_kinds(events.ITER_START)
    assert starts["a"].tolist()[:3] == [0, 1, 2]


def test_a_loader_is_known_again_also_while_the_sampler_holds_the_frame_that_made_the_last_one(tmp_path):
    source = """
        import sys, time, torch
        from torch.utils.data import DataLoader, TensorDataset
        stacks = sys.modules["_flatout_probe.stacks"]
        number = stacks._Sampler._number
        def starved(self, frame, thread=None):
            time.sleep(0.5)
            return number(self, frame, thread)
        stacks._Sampler._number = starved
        class Batches:
            def __iter__(self):
                time.sleep(0.2)  # a sample is taken while the loader makes its iterator
                return iter([[0, 1], [2, 3]])
            def __len__(self):
                return 2
        net = torch.nn.Linear(4, 1)
        data = TensorDataset(torch.randn(4, 4))
        for epoch in range(3):
            for (x,) in DataLoader(data, batch_sampler=Batches()):
                net(x).sum().backward()
    """
    probed = run_probed(tmp_path, source)
    assert probed.code == 0 and probed.faults() == [], probed.err
    waits = probed.main.of_kinds(events.BATCH_WAIT)["arg"].tolist()
    assert len(waits) == 6 and len(set(waits)) == 1


LOOPS = """
    import torch
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.randn(8, 4))

    # Gradients of two batches make one step; the validation loader has no backward pass.
    train = DataLoader(TensorDataset(torch.randn(32, 4)), 4)
    for step, (x,) in enumerate(train):
        net(x).mean().backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        for (x,) in DataLoader(TensorDataset(torch.randn(12, 4)), 4):
            net(x)
    net.train()
    # A stream, a loop without a loader, a closure, a scaler.
    for x in DataLoader(Stream(), 4):
        net(x).mean().backward()
    for _ in range(3):
        net(torch.randn(4, 4)).mean().backward()
        optimizer.step()
    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4)).mean()
        loss.backward()
        return loss
    torch.optim.LBFGS(net.parameters(), max_iter=2).step(closure)
    scaler = torch.amp.GradScaler("cpu")
    with torch.autocast("cpu"):
        loss = net(torch.ones(2, 4)).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    # A loop that is left in the middle, a batch that is a dictionary.
    for batch in DataLoader([{"x": torch.ones(4), "y": 1}] * 8, 2):
        net(batch["x"]).mean().backward()
        break
    torch.save(net.state_dict(), "net.pt")
    print("done")
"""


def test_loops_of_many_shapes_leave_the_right_events(tmp_path):
    probed = run_probed(tmp_path, LOOPS)
    assert probed.code == 0, probed.err
    assert probed.faults() == []
    counts = probed.counts()
    assert counts["BATCH_WAIT"] == 8 + 3 + 2 + 1
    assert counts["OPTIMIZER"] == 4 + 3 + 1 + 1
    assert counts["ITER_START"] == 4
    assert counts["ITER_END"] == 3
    backwards = counts["BACKWARD"]
    assert backwards == counts["FORWARD"] - 3  # three validation batches
    assert 8 + 2 + 3 + 1 + 1 + 1 <= backwards <= 8 + 2 + 3 + 3 + 1 + 1  # L-BFGS calls its closure once to three times
    forwards = probed.main.of_kinds(events.FORWARD)
    assert (forwards["a"] == 0).sum() == 3
    assert (forwards["b"] == events.HAS_TRAINED).sum() == 3
    write = probed.main.of_kinds(events.CHECKPOINT)[0]
    assert probed.main.names.text(int(write["arg"])) == "net.pt"
    assert write["a"] == (tmp_path / "net.pt").stat().st_size
    waits = probed.main.of_kinds(events.BATCH_WAIT)
    assert (waits["b"] & 0xFFFFFFFF).tolist() == [4] * 13 + [2]


def test_reads_of_a_device_carry_the_users_line(tmp_path):
    source = """
        import torch
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(2, 4)
            x.to("meta")
            loss = net(x).mean()
            loss.backward()
            optimizer.step()
            try:
                torch.empty(1, device="meta").item()  # the read
            except RuntimeError:
                pass
    """
    probed = run_probed(tmp_path, source, env={"FLATOUT_DEVICE_HOOKS": "1"})
    assert probed.code == 0, probed.err
    copies, reads = probed.main.of_kinds(events.H2D), probed.main.of_kinds(events.BLOCKING_READ)
    assert len(reads) == 3
    assert copies["a"].tolist()[0] == 2 * 4 * 4
    site = probed.main.names.get(int(reads["arg"][0]), "site")
    assert site["source"].endswith("# the read")
    assert site["file"].endswith("script.py")
    assert probed.main.names.text(int(reads["a"][0])) == "item"


def test_time_on_a_core_and_time_blocked_are_told_apart(tmp_path):
    source = """
        import sys, time, torch
        from torch.utils.data import DataLoader, Dataset
        class Data(Dataset):
            def __len__(self):
                return 24
            def __getitem__(self, index):
                end = time.thread_time() + 0.01
                if sys.argv[1] == "busy":
                    while time.thread_time() < end:
                        pass
                else:
                    time.sleep(0.01)
                return torch.ones(2)
        net = torch.nn.Linear(2, 1)
        for x in DataLoader(Data(), 4, num_workers=1):
            net(x).sum().backward()
    """
    shares = {}
    for kind in ("busy", "asleep"):
        probed = run_probed(tmp_path, source, kind)
        fetches = probed.workers[0].of_kinds(events.FETCH_SCHED)
        assert len(fetches) == 6, probed.err
        shares[kind] = fetches["a"] / (fetches["duration"] - fetches["b"])
        assert len(probed.workers[0].of_kinds(events.ITEM)) == 24
    # Other programs, and a host that takes a core away, only add time to a batch: the least disturbed one counts.
    assert shares["busy"].max() > 0.8
    assert shares["asleep"].min() < 0.2


def test_arrays_that_are_read_whole_are_counted_and_memory_maps_are_not(tmp_path):
    source = """
        import os, sys
        import numpy as np
        import torch
        from torch.utils.data import DataLoader, Dataset
        volume = np.zeros((32, 64, 64), np.uint8)
        np.savez_compressed("volume.npz", image=volume, small=np.zeros(9))
        np.save("volume.npy", volume)
        class Patches(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                if index < 2:
                    found = np.load("volume.npz")
                    found["small"]
                    return torch.from_numpy(found["image"][:8].astype(np.float32))
                return torch.from_numpy(np.array(np.load("volume.npy", mmap_mode="r")[:8], np.float32))
        net = torch.nn.Flatten()
        scale = torch.ones(1, requires_grad=True)
        for x in DataLoader(Patches(), 1):
            (net(x) * scale).sum().backward()
    """
    probed = run_probed(tmp_path, source)
    assert probed.code == 0, probed.err
    assert probed.faults() == []
    reads = probed.main.of_kinds(events.ARRAY_READ)
    assert [probed.main.names.text(int(read["arg"])) for read in reads] == ["numpy", "numpy"]
    for read in reads:
        assert (read["a"], read["b"] & ((1 << 48) - 1), read["b"] >> 48) == (32 * 64 * 64, 32 * 64 * 64, 3)


def test_transforms_are_timed_with_the_pixels_they_see(tmp_path):
    source = """
        import torch
        from PIL import Image
        from torch.utils.data import DataLoader, Dataset
        from torchvision import transforms
        from torchvision.transforms import v2
        pipelines = [
            transforms.Compose([transforms.ColorJitter(0.4), transforms.CenterCrop(16), transforms.ToTensor()]),
            v2.Compose([v2.CenterCrop(16), v2.PILToTensor(), v2.ToDtype(torch.float32)]),
        ]
        class Pictures(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return pipelines[index % 2](Image.new("RGB", (200, 100)))
        net = torch.nn.Flatten()
        scale = torch.ones(1, requires_grad=True)
        for x in DataLoader(Pictures(), 4):
            (net(x) * scale).sum().backward()
    """
    probed = run_probed(tmp_path, source)
    assert probed.code == 0, probed.err
    assert probed.faults() == []
    parts = probed.main.of_kinds(events.TRANSFORM)
    names = [probed.main.names.text(int(part["arg"])) for part in parts]
    assert names.count("ColorJitter") == 2
    assert names.count("ToDtype") == 2
    for part, name in zip(parts, names, strict=True):
        if name == "ColorJitter":
            assert (part["a"], part["b"]) == (20_000, 20_000)  # place 0
        if name == "ToTensor":
            assert (part["a"], part["b"] & ((1 << 48) - 1), part["b"] >> 48) == (256, 256, 2)
