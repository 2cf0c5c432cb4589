"""A small Hugging Face hub on this machine, and its cache, so that no test needs the real one."""

import base64
import hashlib
import json
import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def empty_cache(folder: Path, monkeypatch) -> Path:
    """An empty cache of the hub, which is out of reach."""
    from huggingface_hub import constants

    for name in ("HUGGINGFACE_HUB_CACHE", "HF_HOME", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    return folder


def keep(cache: Path, repository: str, folder: Path, *, revision: str = "main") -> Path:
    """A folder in the cache, in the layout of huggingface_hub: links to files named by content."""
    place = cache / f"models--{repository.replace('/', '--')}"
    for file in filter(Path.is_file, folder.rglob("*")):
        blob = place / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        link = place / "snapshots" / COMMIT / file.relative_to(folder)
        blob.parent.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, blob)
        link.symlink_to(blob)
    (place / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
    (place / "refs" / revision).write_text(COMMIT)
    return place / "snapshots" / COMMIT


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as one repository, org/name, needs to be read and written."""

    def __init__(self, folder, asked, *arguments):
        self.folder, self.asked = folder, asked
        super().__init__(*arguments)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.asked.append(path)
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        names = [file.relative_to(self.folder).as_posix() for file in files]
        known = path.startswith(("/api/models/org/name", "/org/name/resolve/"))
        if not known or ("/revision/" in path and not path.endswith(("/main", COMMIT))):
            missing = "RevisionNotFound" if known else "RepoNotFound"
            self.answer({}, 404, {"X-Error-Code": missing})
        elif "/tree/" in path:
            self.answer([{"type": "file", "path": n, "size": 1, "oid": "0"} for n in names])
        elif path.startswith("/api/"):
            siblings = [{"rfilename": name} for name in names]
            self.answer({"id": "org/name", "sha": COMMIT, "siblings": siblings})
        else:
            self.answer((self.folder / path.split("/", 5)[5]).read_bytes())

    def do_POST(self):
        path = self.path.partition("?")[0]
        self.asked.append(path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if path == "/api/repos/create":
            name = json.loads(body)
            if name.get("organization") != "org":
                self.answer({"error": "You may not write there"}, 403)
            else:
                self.answer({"url": "https://huggingface.co/org/name", "id": "org/name"})
        elif "/preupload/" in path:
            plans = json.loads(body)["files"]
            keys = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            self.answer({"files": [{"path": plan["path"], **keys} for plan in plans]})
        elif "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    file = self.folder / line["value"]["path"]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(base64.b64decode(line["value"]["content"]))
            self.answer(
                {
                    "commitUrl": "https://huggingface.co/org/name/commit/" + COMMIT,
                    "commitOid": COMMIT,
                }
            )
        else:  # the front matter is validated
            self.answer({"errors": [], "warnings": []})

    def answer(self, content, code=200, headers=None):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        about = {"X-Repo-Commit": COMMIT, "ETag": hashlib.sha256(body).hexdigest()}
        about |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, value in {**about, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def serve(folder: Path, monkeypatch):
    """A hub whose only repository has the files of this folder; the paths it is asked for."""
    from huggingface_hub import constants, file_download

    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, folder, asked))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    files = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "ENDPOINT", address)
    for module in (constants, file_download):  # earlier versions have a copy in the second
        monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", files, raising=False)
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
