"""A run as a repository on the Hugging Face hub.

run.save_for_hub("folder")            the files of the repository, to look at
run.push_to_hub("org/name")           the same, uploaded

README.md                the model card: findings, figures, scores, how it was trained
figures/                 its figures
run.json                 the configuration, without the folders of this machine
model.safetensors        the trained weights, byte for byte
history.jsonl            one row for each logged step
"""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from zscope import hub, store
from zscope.errors import ConfigError, MissingExtra, RunError, ZscopeError
from zscope.report.model_card import write_model_card

if TYPE_CHECKING:
    from zscope.report.build import Report

__all__ = ["push_to_hub", "save_for_hub"]

RESAMPLES = 20
"""Those of `zscope report`, whose results are reused."""


def save_for_hub(
    run: store.Run,
    folder: str | Path,
    *,
    repository: str | None = None,
    report: "Report | None" = None,
    license: str | None = None,
) -> Path:
    """See `Run.save_for_hub`."""
    from zscope.report.build import assay

    folder = Path(folder)
    repository = None if repository is None else _name_of(repository, "save_for_hub")
    if run.path is None:
        raise RunError(
            "save_for_hub: this run is only in memory, so it has no files. Train with out=FOLDER."
        )
    run = store.open_run(run.path)
    assert run.path is not None
    if not run.finished:
        raise RunError(
            f"save_for_hub: {run.path} is not finished ({run.status}, step {run.step} of "
            f"{run.config.get('steps')}). Resume it first: zscope train --out {run.path} --resume"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            f"save_for_hub: {folder} is not an empty folder. So that no file is overwritten, choose"
            " another place."
        )
    if report is None:
        report = assay(run, resamples=RESAMPLES)
    config = without_folders(run.config)
    write_model_card(
        report,
        folder,
        name=None if repository else run.name,
        repository=repository,
        config=config,
        is_run=True,
        license=license,
    )
    for name in ("model.safetensors", "history.jsonl"):
        if (run.path / name).is_file():
            shutil.copyfile(run.path / name, folder / name)
    replace(run, path=folder, config=config).save()
    return folder


def push_to_hub(
    run: store.Run,
    repository: str,
    *,
    report: "Report | None" = None,
    license: str | None = None,
    private: bool = False,
    token: str | None = None,
) -> str:
    """See `Run.push_to_hub`."""
    repository = _name_of(repository, "push_to_hub")
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtra("push_to_hub", "huggingface-hub", "hub") from None
    with TemporaryDirectory(prefix="zscope-hub-") as temporary:
        folder = save_for_hub(
            run, Path(temporary) / "files", repository=repository, report=report, license=license
        )
        try:
            api = huggingface_hub.HfApi(token=token)
            place = api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                commit_message=f"Upload a {run.config['model']['name']} with its model card"
                if run.config.get("model")
                else "Upload a model with its card",
            )
        except ZscopeError:
            raise
        except Exception as error:
            detail = " ".join(str(error).split())[:300]
            raise RunError(
                f"push_to_hub: {repository} could not be uploaded ({type(error).__name__}: {detail}"
                "). Are you logged in, with a token that may write there (hf auth login, or "
                "token=)? The same files are written by run.save_for_hub(folder), to upload with: "
                f"hf upload {repository} FOLDER"
            ) from error
    return str(place)


def _name_of(repository: str, who: str) -> str:
    """The name org/name of a repository to write to: its main branch, not a folder in it."""
    address = hub.Address.parse(f"{hub.PREFIX}{repository.removeprefix(hub.PREFIX)}")
    if address != hub.Address(address.repository):
        raise ConfigError(
            f"{who}: {repository} names a revision or a folder of a repository, but a run is "
            f"written to the main branch of a repository of its own: {address.repository}"
        )
    return address.repository


def _is_path(text: str) -> bool:
    """Whether text is a path, and not, say, the name of a column in mg/dl."""
    starts = re.match(r"~|\.{0,2}[/\\]|[A-Za-z]:[/\\]", text) is not None
    return starts or (any(mark in text for mark in "/\\") and os.path.lexists(text))


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the names of files alone, not the folders that they are in here."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, str) and _is_path(value):
            return Path(value.replace("\\", "/")).name
        return value

    content: dict[str, Any] = json.loads(json.dumps(config))
    return {**content, **{key: plain(content[key]) for key in ("data", "start") if key in content}}
