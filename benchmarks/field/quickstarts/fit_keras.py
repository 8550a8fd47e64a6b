"""Keras on torch, as its first example shows it: fit() over a PyDataset of pictures read from files."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras

folder, side, log = sys.argv[1:]
keras.utils.set_random_seed(1)
size = (int(side), int(side))


class Pictures(keras.utils.PyDataset):
    """Files of two classes in batches of 8."""

    def __init__(self):
        super().__init__(workers=1, use_multiprocessing=False)
        self.files = sorted(
            (os.path.join(place, name), number)
            for number, kind in enumerate(sorted(os.listdir(folder)))
            for place in [os.path.join(folder, kind)]
            for name in os.listdir(place)
        )

    def __len__(self):
        return len(self.files) // 8

    def __getitem__(self, index):
        chosen = self.files[index * 8 : index * 8 + 8]
        images = [keras.utils.img_to_array(keras.utils.load_img(path, target_size=size)) for path, _ in chosen]
        return keras.ops.stack(images) / 255.0, keras.ops.array([number for _, number in chosen])


model = keras.Sequential(
    [
        keras.layers.Input((*size, 3)),
        keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(2),
    ]
)
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(Pictures(), epochs=2, shuffle=False, verbose=2, callbacks=[keras.callbacks.CSVLogger(log)])
with open(log) as file:
    print(*("loss " + line.split(",")[1] for line in file if line[0].isdigit()), sep="\n")
