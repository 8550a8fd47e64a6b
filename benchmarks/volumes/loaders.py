"""Loaders of augmented 3-D patches with labels, each over the same volumes in the form that its users have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PATCH = 128
BATCH = 2
FOREGROUND = 1 / 3
SEED = 0
Batches = Iterator[Any]  # each of BATCH patches with labels


@dataclass(frozen=True)
class Loader:
    """One row of the table.

    Attributes:
        name: As in the table.
        package: That must be installed; empty: none but flatout.
        form: Of the files: a key of FORMS.
        batches: Opens the folder and yields batches without end.
        augments: True if what it yields is augmented.
    """

    name: str
    package: str
    form: str
    batches: Callable[[Path], Batches]
    augments: bool


def volumes(edge: int, count: int) -> Iterator[tuple[str, Any, Any]]:
    """Case, uint8 image and labels 0 and 1: wavy sheets in the noise of a detector."""
    y, x = np.mgrid[0:edge, 0:edge].astype(np.float32)
    for case in range(count):
        rng = np.random.default_rng(case)
        image = np.empty((edge, edge, edge), np.uint8)
        label = np.empty_like(image)
        for z in range(edge):
            sheets = np.sin((x + 8 * np.sin(y / 23 + z / 41 + case)) / 5)
            image[z] = (sheets * 30 + 120 + rng.normal(0, 12, sheets.shape)).clip(0, 255)
            label[z] = sheets > 0.7
        yield f"case{case}", image, label


def write_staged(folder: Path, edge: int, count: int) -> None:
    """What `flatout stage --volumes` makes of npy files."""
    from flatout.volumes.plan import VolumeOptions
    from flatout.volumes.staging import stage_volumes

    source = folder / "source"
    for case, image, label in volumes(edge, count):
        (source / case).mkdir(parents=True)
        np.save(source / case / "image.npy", image)
        np.save(source / case / "label.npy", label)
    stage_volumes(source, folder / "staged", VolumeOptions(), lambda progress: None, lambda line: None)


def write_nnunet(folder: Path, edge: int, count: int) -> None:
    """What nnU-Net's preprocessing leaves: normalised float32 in Blosc2, with the places of foreground."""
    from nnunetv2.training.dataloading.nnunet_dataset import comp_blosc2_params, nnUNetDatasetBlosc2

    for case, image, label in volumes(edge, count):
        plain = image.astype(np.float32)[None]
        plain = (plain - plain.mean()) / plain.std()
        rng = np.random.default_rng(1)
        places = np.argwhere(label)
        places = places[rng.choice(len(places), 10_000, replace=False)]  # at least 10,000, or a hundredth
        found = {1: np.concatenate([np.zeros((len(places), 1), np.int64), places], axis=1)}
        blocks, chunks = comp_blosc2_params(plain.shape, (PATCH,) * 3)
        label_blocks, label_chunks = comp_blosc2_params(plain.shape, (PATCH,) * 3, 1)
        nnUNetDatasetBlosc2.save_case(
            plain,
            label.astype(np.int8)[None],
            {"class_locations": found},
            str(folder / case),
            chunks=chunks,
            blocks=blocks,
            chunks_seg=label_chunks,
            blocks_seg=label_blocks,
        )


def write_nifti(folder: Path, edge: int, count: int) -> None:
    """One uncompressed NIfTI an image and one a label."""
    import nibabel

    for case, image, label in volumes(edge, count):
        for kind, voxels in (("image", image), ("label", label)):
            nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), folder / f"{case}_{kind}.nii")


FORMS = {"staged": write_staged, "nnunet": write_nnunet, "nifti": write_nifti}


def flatout_patches(folder: Path) -> Batches:
    """Patches as stored: the device augments."""
    from flatout.loader.patch_loader import PatchLoader
    from flatout.volumes import PatchDataset

    found = PatchDataset(folder / "staged", (PATCH,) * 3, seed=SEED, foreground_share=FOREGROUND)
    plan = [range(first, first + BATCH) for first in range(0, 10_000, BATCH)]
    with PatchLoader(found.__getitem__, lambda epoch: plan, workers=1) as loader:
        yield from loader


def flatout_augmented(folder: Path) -> Batches:
    """The same, normalised and augmented on the CPU."""
    import torch

    from flatout.segmentation.augment import Normalisation, augment
    from flatout.segmentation.draws import Chances, draw

    normalise = Normalisation(mean=120.0, std=24.0, low=0.0, high=255.0)
    chances = Chances()
    for batch in flatout_patches(folder):
        draws = [draw(chances, SEED, number) for number in batch.numbers]
        yield augment(normalise(batch.images)[:, None], batch.labels.to(torch.int16), draws, 255)


def _nnunet(folder: Path, transforms: Any, initial: tuple[int, ...]) -> Batches:
    from types import SimpleNamespace

    from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
    from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2

    labels: Any = SimpleNamespace(all_labels=[1], has_ignore_label=False)
    loader = nnUNetDataLoader(
        nnUNetDatasetBlosc2(str(folder)),
        BATCH,
        initial,
        (PATCH,) * 3,
        labels,
        oversample_foreground_percent=FOREGROUND,
        probabilistic_oversampling=True,
        transforms=transforms,
    )
    while True:
        yield next(loader)


def nnunet_patches(folder: Path) -> Batches:
    """Its loader without transforms: the patch alone."""
    return _nnunet(folder, None, (PATCH,) * 3)


def nnunet_augmented(folder: Path) -> Batches:
    """Its loader with its trainer's transforms, on the box that they are given."""
    from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    turn = (-np.pi / 6, np.pi / 6)
    transforms = nnUNetTrainer.get_training_transforms((PATCH,) * 3, turn, None, (0, 1, 2), False)
    box = get_patch_size((PATCH,) * 3, turn, turn, turn, (0.85, 1.25))
    return _nnunet(folder, transforms, tuple(int(edge) for edge in box))


def _monai(folder: Path, augments: bool) -> Batches:
    import monai.transforms as m
    from monai.data import CacheDataset, DataLoader

    cases = [
        {"image": str(path), "label": str(path).replace("_image", "_label")} for path in folder.glob("*_image.nii")
    ]
    both = ["image", "label"]
    chain = [
        m.LoadImaged(both),
        m.EnsureChannelFirstd(both),
        m.NormalizeIntensityd("image"),
        m.RandCropByPosNegLabeld(both, "label", (PATCH,) * 3, pos=1, neg=2, num_samples=1),
    ]
    if augments:
        turn = (np.pi / 6,) * 3
        chain += [
            m.RandAffined(
                both, prob=0.36, rotate_range=turn, scale_range=(0.3,) * 3, mode=("bilinear", "nearest"),
                padding_mode="border",
            ),
            m.RandGaussianNoised("image", prob=0.1, std=0.3),
            m.RandGaussianSmoothd("image", prob=0.1, sigma_x=(0.5, 1), sigma_y=(0.5, 1), sigma_z=(0.5, 1)),
            m.RandScaleIntensityd("image", prob=0.15, factors=0.25),
            m.RandAdjustContrastd("image", prob=0.15, gamma=(0.75, 1.25)),
            m.RandSimulateLowResolutiond("image", prob=0.125, zoom_range=(0.5, 1.0)),
            m.RandAdjustContrastd("image", prob=0.1, gamma=(0.7, 1.5), invert_image=True, retain_stats=True),
            m.RandAdjustContrastd("image", prob=0.3, gamma=(0.7, 1.5), retain_stats=True),
            *(m.RandFlipd(both, prob=0.5, spatial_axis=axis) for axis in range(3)),
        ]  # fmt: skip
    loader = DataLoader(
        CacheDataset(cases, m.Compose(chain), progress=False), batch_size=BATCH, shuffle=True, num_workers=0
    )
    while True:
        yield from loader


def monai_patches(folder: Path) -> Batches:
    """Whole volumes held in memory by CacheDataset, cropped."""
    return _monai(folder, augments=False)


def monai_augmented(folder: Path) -> Batches:
    """The same with its own transforms, at nnU-Net's shares and ranges where it has them."""
    return _monai(folder, augments=True)


def torchio_augmented(folder: Path) -> Batches:
    """Its queue: whole volumes are augmented, then patches are cut, eight of each."""
    import torchio as tio
    from torch.utils.data import DataLoader

    transforms = tio.Compose(
        [
            tio.ZNormalization(),
            tio.RandomAffine(scales=(0.7, 1.4), degrees=30, isotropic=True, p=0.36),
            tio.RandomNoise(std=(0, 0.3), p=0.1),
            tio.RandomBlur(std=(0.5, 1), p=0.1),
            tio.RandomGamma(log_gamma=(-0.3, 0.3), p=0.4),
            tio.RandomFlip(axes=(0, 1, 2), flip_probability=0.5),
        ]
    )
    subjects = [
        tio.Subject(image=tio.ScalarImage(path), label=tio.LabelMap(str(path).replace("_image", "_label")))
        for path in folder.glob("*_image.nii")
    ]
    sampler = tio.LabelSampler(PATCH, label_probabilities={0: 1 - FOREGROUND, 1: FOREGROUND})
    queue = tio.Queue(
        tio.SubjectsDataset(subjects, transform=transforms), 16, 8, sampler, num_workers=0, start_background=False
    )
    while True:
        yield from DataLoader(queue, batch_size=BATCH, num_workers=0)


OURS, OURS_ON_CPU = "flatout, to be augmented on the device", "flatout, augmented on the CPU"
NNUNET, NNUNET_PLAIN = "nnU-Net, augmented", "nnU-Net, without transforms"
LOADERS = (
    Loader(OURS, "", "staged", flatout_patches, augments=False),
    Loader(OURS_ON_CPU, "", "staged", flatout_augmented, augments=True),
    Loader(NNUNET_PLAIN, "nnunetv2", "nnunet", nnunet_patches, augments=False),
    Loader(NNUNET, "nnunetv2", "nnunet", nnunet_augmented, augments=True),
    Loader("MONAI, CacheDataset, cropped only", "", "nifti", monai_patches, augments=False),
    Loader("MONAI, CacheDataset, augmented", "", "nifti", monai_augmented, augments=True),
    Loader("TorchIO, queue, augmented", "torchio", "nifti", torchio_augmented, augments=True),
)
