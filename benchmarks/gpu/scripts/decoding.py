"""Images a second of one decoder, and how far its pixels are from Pillow's: decoding.py DECODER FOLDER BATCHES SIZE."""

import json
import sys
import time

import torch

from flatout.errors import UsageError
from flatout.loader.image_loader import ImageLoader
from flatout.loader.sources.folders import ImageFolderSource


def made(decoder, source, size):
    return ImageLoader(
        source, range(len(source.samples)), size=size, batch_size=16, training=True, decoder=decoder, backend="threads"
    )


def main():
    from pathlib import Path

    decoder, folder, batches, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    source = ImageFolderSource(folder)
    try:
        with made(decoder, source, size) as loader, made("pillow", source, size) as reference:
            ours, theirs = next(iter(loader)), next(iter(reference))
            difference = (ours.images.cpu().float() - theirs.images.float()).abs().mean().item()
            same = torch.equal(ours.labels.cpu(), theirs.labels)
            count, begin = 0, time.perf_counter()
            while count < batches:
                for batch in loader:
                    batch.to("cuda", non_blocking=True)
                    count += 1
                    if count >= batches:
                        break
            torch.cuda.synchronize()
            rate = 16 * count / (time.perf_counter() - begin)
    except UsageError as error:
        print("RESULT " + json.dumps({"error": str(error)}))
        return
    print("RESULT " + json.dumps({"rate": rate, "difference": difference, "same_labels": same}))


if __name__ == "__main__":
    main()
