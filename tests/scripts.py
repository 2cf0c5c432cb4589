"""Scripts that are no modules, for tests of them."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def load_script(path: Path) -> ModuleType:
    """A script as a module, each time anew."""
    description = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


def docs_script(name: str) -> ModuleType:
    """A script of docs/."""
    return load_script(ROOT / "docs" / f"{name}.py")


@contextmanager
def answering(script: Path, folder: Path) -> Iterator[Callable[..., Any]]:
    """A script that answers a line of JSON with another, in a process of its own."""
    with subprocess.Popen(
        [sys.executable, script, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
    ) as server:

        def ask(**request: Any) -> Any:
            print(json.dumps(request), file=server.stdin, flush=True)
            return json.loads(server.stdout.readline())

        yield ask
        server.stdin.close()
