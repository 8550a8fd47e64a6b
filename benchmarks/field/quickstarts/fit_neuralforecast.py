"""neuralforecast, as its quick start shows it: NHITS on series of a table."""

import sys

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS

steps, check = map(int, sys.argv[1:])
values = np.random.default_rng(1).normal(size=(20, 400)).cumsum(axis=1)
table = pd.concat(
    pd.DataFrame({"unique_id": f"s{number}", "ds": np.arange(400), "y": row}) for number, row in enumerate(values)
)
model = NHITS(
    h=12, input_size=48, max_steps=steps, val_check_steps=check, random_seed=1, accelerator="cpu", logger=False,
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
)  # fmt: skip
forecast = NeuralForecast(models=[model], freq=1)
forecast.fit(table, val_size=24)
fitted = forecast.models[0]
print("steps", len(fitted.train_trajectories))
for _, loss in fitted.train_trajectories:
    print("loss", loss)
