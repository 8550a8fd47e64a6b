"""The S3 server of the benchmark, filled, and nginx before it, which makes every request wait."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.stage.server import ACCESS, BUCKET, SECRET, bucket_store, s3_server  # noqa: E402, F401

MEAN_BYTES = 110_000
NGINX = """
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_max_body_size 0;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream store {{ server {behind}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port}; keepalive_requests 1000000;
    location / {{
      access_by_lua_block {{ ngx.sleep({delay_s}) }}
      proxy_pass http://store; proxy_set_header Host $http_host; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


@contextmanager
def filled_server(folder: Path, files: int, large_bytes: int) -> Iterator[str]:
    """A server with ``files/…`` and ``large/one.bin``; gives its endpoint."""
    import obstore

    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1")
    with s3_server(folder) as endpoint:
        store = bucket_store(endpoint)
        block = random.Random(0).randbytes(2 * MEAN_BYTES)

        def put(number: int) -> None:
            size = random.Random(number).randrange(MEAN_BYTES // 2, 3 * MEAN_BYTES // 2)
            start = number % MEAN_BYTES
            body = number.to_bytes(8, "big") + block[start : start + size - 8]
            obstore.put(store, f"files/c{number % 100:03}/{number:06}.jpg", body)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(put, range(files)))
        if large_bytes:
            piece = random.Random(1).randbytes(16 << 20)
            obstore.put(store, "large/one.bin", (piece for _ in range(large_bytes // len(piece))))
        yield endpoint


@contextmanager
def delayed(endpoint: str, delay_s: float, folder: Path) -> Iterator[str]:
    """The same server through nginx, each request held for so long; itself where that is 0."""
    if not delay_s:
        yield endpoint
        return
    modules = Path("/usr/lib/nginx/modules")
    if shutil.which("nginx") is None or not (modules / "ngx_http_lua_module.so").exists():
        raise SystemExit("a delay needs nginx with its Lua module (Debian: nginx-light libnginx-mod-http-lua)")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    behind = endpoint.removeprefix("http://")
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(modules=modules, folder=folder, behind=behind, port=port, delay_s=delay_s))
    with subprocess.Popen(["nginx", "-p", str(folder), "-c", str(config)], stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()
