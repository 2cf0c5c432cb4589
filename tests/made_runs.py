"""Run folders written by hand, for tests of what reads many of them."""

import json
import time
from pathlib import Path
from typing import Any

from zscope import store

ENVIRONMENT = {"zscope": "0.1.0", "torch": "2.13.0", "machine": "x86_64", "threads": 1}


def make_run(
    path: Path,
    *,
    model: str = "beta-vae",
    data: str = "digits",
    data_options: dict[str, Any] | None = None,
    seed: int = 0,
    scores: dict[str, Any] | None = None,
    entry: dict[str, Any] | None = None,
    status: str = "finished",
    environment: dict[str, Any] | None = None,
    history: dict[str, float] | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """A run with these settings; `scores` by assay, a number or numbers by name."""
    path.mkdir(parents=True)
    recipe = {
        "name": model, "shape": [1, 8, 8], "latents": settings.pop("latents", 10),
        "options": {"seed": seed, "hidden": [16], **(options or {})},
    }  # fmt: skip
    config = {
        "model": recipe,
        "data": {"name": data, "options": data_options or {}, "split": None},
        "steps": 100, "batch": 64, "rate": 0.001, "seed": seed, "clip": None,
        "snapshots": [], "scaling": None, "log_every": 100, **settings,
    }  # fmt: skip
    content = {"status": status, "step": config["steps"], "config": config}
    about = {**ENVIRONMENT, **(environment or {})}
    store.write_json(path / "run.json", {**content, "environment": about, "history": None})
    last = {"loss": 30.0 + seed, "passive": 3, **(history or {})}
    rows = [{"format": 1, "step": step, **last} for step in (50, config["steps"])]
    (path / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if scores is not None:
        write_scores(path, scores, **(entry or {}))
    return path


def write_scores(path: Path, scores: dict[str, Any], **entry: Any) -> None:
    """scores.json with an entry for each assay, beside those that are there."""
    file = path / "scores.json"
    entries = store.read_json(file)["entries"] if file.exists() else []
    about = {
        "options": "[]", "asked": 5000, "samples": 1797, "seed": 0, "resamples": 0,
        "missing": None, "zscope": "0.1.0", "source": "abc", "weights": "def",
        "time": time.time(), "intervals": {},
    }  # fmt: skip
    for assay, values in scores.items():
        named = values if isinstance(values, dict) else {"": values}
        entries.append({"assay": assay, "scores": named, **about, **entry})
    store.write_json(file, {"entries": entries})


def write_sweep(out: Path, names: list[str], **content: Any) -> Path:
    """sweep.json of a plan with these runs."""
    runs = [{"name": name, "address": name, "fields": {}, "line": "grid"} for name in names]
    assay = {"names": [], "samples": 5000, "seed": 0, "resamples": 0, "options": {}}
    plan = {"plan": {}, "runs_folder": "runs", "runs": runs, "groups": [], "assay": assay}
    out.mkdir(parents=True, exist_ok=True)
    store.write_json(out / "sweep.json", {**plan, **content})
    return out
