"""fastai, as its quick start shows it: a vision learner from a folder, without pretrained weights."""

import sys

from fastai.vision.all import ImageDataLoaders, Resize, error_rate, set_seed, vision_learner
from torchvision.models import shufflenet_v2_x0_5

folder, side, workers = sys.argv[1:]
set_seed(1)
data = ImageDataLoaders.from_folder(
    folder, train="train", valid="val", item_tfms=Resize(int(side)), bs=8, num_workers=int(workers), device="cpu"
)
learner = vision_learner(data, shufflenet_v2_x0_5, metrics=error_rate, pretrained=False, path=".", cut=-1)
with learner.no_bar():
    learner.fit(2, 0.001)
print("steps", len(learner.recorder.losses))
for loss in learner.recorder.losses:
    print("loss", float(loss))
