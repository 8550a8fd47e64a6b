"""s3torchconnector's client in threads, each body into a file.

Usage: python torch_connector.py ENDPOINT BUCKET PREFIX DEST THREADS
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from s3torchconnector._s3client import S3Client, S3ClientConfig


def main() -> None:
    """List, and fetch in threads."""
    endpoint, bucket, prefix, dest, threads = sys.argv[1:]
    client = S3Client("us-east-1", endpoint=endpoint, s3client_config=S3ClientConfig(force_path_style=True))
    keys = [info.key for page in client.list_objects(bucket, prefix) for info in page.object_info]
    for folder in {os.path.dirname(key) for key in keys}:
        os.makedirs(os.path.join(dest, folder), exist_ok=True)

    def one(key: str) -> None:
        with open(os.path.join(dest, key), "wb", buffering=0) as file:
            file.write(client.get_object(bucket, key).read())

    with ThreadPoolExecutor(int(threads)) as pool:
        list(pool.map(one, keys))


if __name__ == "__main__":
    main()
