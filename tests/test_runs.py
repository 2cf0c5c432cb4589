"""Many runs as rows: from their files or an index, whatever state both are in."""

import json
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from made_runs import make_run, write_scores, write_sweep

import zscope as zs
from zscope import store
from zscope.collection import index
from zscope.errors import ConfigError, RunError


@pytest.fixture
def folder(tmp_path):
    """Two models with three seeds each, and an autoencoder without β."""
    for seed in range(3):
        for beta in (1, 4):
            make_run(
                tmp_path / f"vae-b{beta}-s{seed}", seed=seed, options={"beta": beta},
                scores={"mig": 0.1 * beta + 0.01 * seed,
                        "dci": {"disentanglement": 0.5, "explicit score": 0.9},
                        "type-probe": {"mean, passive": 0.5},
                        "variable-types": {"active": 6, "passive": 2}},
            )  # fmt: skip
    make_run(tmp_path / "ae-s0", model="ae", scores={"mig": 0.05})
    return tmp_path


@pytest.fixture
def indexed(monkeypatch):
    """An index even of few runs; counts the runs that are read from their own files."""
    monkeypatch.setattr(index, "WORTH", 1)
    reads = []
    read = index.read_record
    monkeypatch.setattr(index, "read_record", lambda path: reads.append(path.name) or read(path))
    return reads


def test_rows_have_settings_scores_and_the_end_of_the_history(folder):
    runs = zs.runs(folder)
    assert len(runs) == 7
    row = next(row for row in runs.rows if row["run"] == "vae-b4-s2")
    expected = {
        "model": "beta-vae", "data": "digits", "latents": 10, "beta": 4, "seed": 2, "steps": 100,
        "status": "finished", "hidden": "16", "mig": pytest.approx(0.42),
        "dci.disentanglement": 0.5, "dci.explicit-score": 0.9, "variable-types.passive": 2,
        "history.loss": 32.0,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["history.passive"] == 3  # in a batch, where the assay counts 2 on the data
    assert not {"options.seed", "clip", "problem"} & set(row)  # one seed of weights and batches
    assert runs.varying() == ["model", "beta", "seed"]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("beta", "beta"),
        ("options.beta", "beta"),
        ("dci", "dci.disentanglement"),
        ("mig", "mig"),
        ("passive", "variable-types.passive"),
        ("explicit-score", "dci.explicit-score"),
        ("mean-passive", "type-probe.mean-passive"),
        ("loss", "history.loss"),
        ("history.loss", "history.loss"),
        ("run", "run"),
    ],
)
def test_long_short_and_last_names_lead_to_the_same_column(folder, name, column):
    assert zs.runs(folder).columns.resolve(name) == column


def test_a_name_that_may_be_two_columns_is_refused(tmp_path):
    make_run(tmp_path / "a", scores={"one": {"x": 1.0, "same": 2.0}, "two": {"same": 3.0}},
             options={"beta": 1, "size": 3}, data_options={"size": 8})  # fmt: skip
    runs = zs.runs(tmp_path)
    with pytest.raises(ConfigError, match=r"'same' may be one\.same or two\.same"):
        runs.columns.resolve("same")
    assert (runs.rows[0]["options.size"], runs.rows[0]["data.options.size"]) == (3, 8)
    with pytest.raises(ConfigError, match=r"may be options\.size or data\.options\.size"):
        runs.columns.resolve("size")


def test_counts_in_a_batch_never_stand_for_those_of_the_assay(tmp_path):
    make_run(tmp_path / "a")
    runs = zs.runs(tmp_path)
    with pytest.raises(ConfigError, match=r"'passive' was not measured.*ask for history\.passive"):
        runs.columns.resolve("passive")
    with pytest.raises(ConfigError, match="zscope assay RUN variable-types"):
        runs.select(passive=3)
    assert runs.rows[0][runs.columns.resolve("history.passive")] == 3
    # Of runs that were measured and others that were not, the column has only the former.
    make_run(tmp_path / "b", seed=1, scores={"variable-types": {"active": 6, "passive": 2}})
    runs = zs.runs(tmp_path)
    column = runs.columns.resolve("passive")
    assert {row["run"]: row.get(column) for row in runs.rows} == {"a": None, "b": 2}
    assert [row["history.passive"] for row in runs.rows] == [3, 3]


def test_select_and_groups(folder):
    runs = zs.runs(folder)
    assert len(runs.select(beta=4)) == len(runs.select(beta=[4.0], model="beta-vae")) == 3
    assert len(runs.select(beta=(1, 4), seed=range(2))) == 4
    assert len(runs.select(beta=True)) == 0  # which Python takes for 1
    assert len(runs.select(**{"options.beta": 1})) == 3
    groups = [(key, len(group)) for key, group in runs.groups("model", "beta")]
    assert groups == [
        ({"model": "ae", "beta": None}, 1),
        ({"model": "beta-vae", "beta": 1}, 3),
        ({"model": "beta-vae", "beta": 4}, 3),
    ]
    with pytest.raises(ConfigError, match=r"no column is called 'betta'. Did you mean beta"):
        runs.select(betta=1)


def test_levels_of_a_column(folder):
    runs = zs.runs(folder)
    assert runs.levels("options.beta") == runs.levels("beta") == [1, 4, None]
    with pytest.raises(ConfigError, match="levels: no column is called 'nope'"):
        runs.levels("nope")
    with pytest.raises(ConfigError, match="Did you mean beta"):
        runs.levels("betta")


def test_a_split_is_called_as_in_a_plan(tmp_path):
    for k, first in enumerate((0.5, 0.8)):
        path = make_run(tmp_path / f"a{k}")
        content = store.read_json(path / "run.json")
        content["config"]["data"]["split"] = {"fractions": [first, 1 - first], "seed": 0, "part": 0}
        store.write_json(path / "run.json", content)
    make_run(tmp_path / "b")
    runs = zs.runs(tmp_path)
    assert runs.varying() == ["split"]  # and not the seed that only split data have
    assert runs.levels("split") == ["0.5,0.5", "0.8,0.19999999999999996", None]
    assert len(runs.select(split="0.5,0.5")) == 1


def test_words_of_a_plan_that_stand_for_settings_are_columns(tmp_path):
    plan = []
    for k, epochs in enumerate((2, 4)):
        fields = {"epochs": epochs, "preset": "structural-2023", "steps": 10 * epochs,
                  "options.hidden": [16]}  # fmt: skip
        plan += [{"name": f"{name}{k}", "fields": fields} for name in ("a", "later")]
        make_run(tmp_path / "runs" / f"a{k}", steps=10 * epochs, options={"decoder_hidden": 8})
    write_sweep(tmp_path, [], runs=plan)
    runs = zs.runs(tmp_path)
    assert runs.varying() == ["steps"]
    assert (runs.levels("epochs"), runs.levels("preset")) == ([2, 4], ["structural-2023"])
    assert runs.select(epochs=2, hidden="16").missing == ["later0"]
    assert runs.levels("options.decoder-hidden") == runs.levels("decoder-hidden") == [8]


def test_iterating_opens_the_runs(folder):
    runs = zs.runs(folder)
    for path in runs.paths:
        (path / "model.safetensors").touch()
    opened = list(runs.select(beta=4))
    assert [type(run) for run in opened] == [store.Run] * 3
    assert {run.config["model"]["options"]["beta"] for run in opened} == {4}


def test_frames_and_short_tables(folder):
    runs = zs.runs(folder)
    frame = runs.to_frame()
    assert list(frame.columns[:5]) == ["run", "status", "step", "model", "data"]
    assert frame["beta"].isna().sum() == 1
    assert "7 runs in" in repr(runs)
    assert "vae-b4-s2" in repr(runs)
    assert "<table>" in runs._repr_html_()
    assert repr(runs.select(beta=99)).startswith("0 runs")


def test_one_run_and_runs_in_folders_below(folder):
    assert [row["run"] for row in zs.runs(folder / "ae-s0").rows] == ["ae-s0"]
    make_run(folder / "more" / "deep" / "x")
    (folder / "more" / "back").symlink_to(folder)
    names = {row["run"] for row in zs.runs(folder).rows}
    assert "more/deep/x" in names
    assert len(names) == 8


def test_folders_without_runs_are_refused(tmp_path, monkeypatch):
    with pytest.raises(RunError, match="there is no folder"):
        zs.runs(tmp_path / "none")
    with pytest.raises(RunError, match="there is no run in .*zscope sweep run"):
        zs.runs(tmp_path)
    monkeypatch.setattr(index, "MOST", 3)
    for k in range(4):
        (tmp_path / str(k)).mkdir()
    with pytest.raises(RunError, match="more than 3 folders below"):
        zs.runs(tmp_path)


def test_a_sweep_has_the_runs_of_its_plan_and_knows_what_is_missing(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    names = ["vae-b1-s0", "vae-b4-s0", "vae-b4-s9", "vae-b1-s9"]
    fields = [{"options.beta": 1}, {"options.beta": 4}, {"options.beta": 4}, {"options.beta": 1}]
    plan = [{"name": n, "fields": f} for n, f in zip(names, fields, strict=True)]
    write_sweep(out, [], runs_folder=str(folder), runs=plan)
    (out / "failed").mkdir()
    (out / "failed" / "vae-b4-s9.txt").write_text("the loss became NaN\nTraceback ...")
    (out / "failed" / "of-another-plan.txt").write_text("no")
    runs = zs.runs(out)
    assert [row["run"] for row in runs.rows] == names[:2]
    assert runs.missing == names[2:]
    assert runs.select(beta=4).missing == ["vae-b4-s9"]
    assert runs.failed == {"vae-b4-s9": "the loss became NaN"}


def test_a_sweep_takes_the_scores_that_it_asked_for(tmp_path):
    path = make_run(tmp_path / "runs" / "a", scores={"mig": 0.1}, entry={"time": 1.0})
    write_scores(path, {"mig": 0.2}, options="[('bins', 10)]", time=2.0)
    write_scores(path, {"mig": 0.3}, asked=100, samples=100, time=3.0)
    assert zs.runs(tmp_path).rows[0]["mig"] == 0.3  # the newest
    request = {"assay": "mig", "options": "[]", "asked": 5000, "seed": 0}
    write_sweep(tmp_path, ["a"], assay={"requests": {"mig": request}})
    assert zs.runs(tmp_path).rows[0]["mig"] == 0.1
    request["options"] = "[('bins', 10)]"
    write_sweep(tmp_path, ["a"], assay={"requests": {"mig": request}})
    assert zs.runs(tmp_path).rows[0]["mig"] == 0.2


def test_an_option_that_only_one_model_has_does_not_vary(tmp_path):
    make_run(tmp_path / "a", model="vae")
    make_run(tmp_path / "b", model="beta-tcvae", options={"estimator": "weighted"})
    assert zs.runs(tmp_path).varying() == ["model"]
    make_run(tmp_path / "c", model="beta-tcvae", options={"estimator": "stratified"})
    assert zs.runs(tmp_path).varying() == ["model", "estimator"]


def test_an_assay_without_a_value_in_any_run_says_why(tmp_path):
    path = make_run(tmp_path / "a", scores={"mig": 0.1})
    write_scores(path, {"dci": {}}, missing="Not applicable: one factor.")
    with pytest.raises(ConfigError, match=r"dci was measured, and no run has a value. Not appl"):
        zs.runs(tmp_path).columns.resolve("dci")


def test_a_damaged_plan_is_refused(tmp_path):
    store.write_json(tmp_path / "sweep.json", {"runs": 3})
    with pytest.raises(RunError, match="has no list of runs"):
        zs.runs(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1}', b"[]", b"\xff\xfe"])
def test_a_damaged_run_is_listed_and_the_others_go_on(folder, content):
    (folder / "vae-b1-s0" / "run.json").write_bytes(content)
    runs = zs.runs(folder)
    assert len(runs) == 7
    assert [row["run"] for row in runs.rows if row["status"] == "damaged"] == ["vae-b1-s0"]
    assert "run.json" in runs.damaged["vae-b1-s0"]
    assert runs.varying() == ["model", "beta", "seed"]


def test_damaged_scores_and_histories_cost_their_own_columns(folder):
    (folder / "ae-s0" / "scores.json").write_text("{")
    (folder / "vae-b1-s0" / "history.jsonl").write_text("nonsense\n")
    (folder / "vae-b1-s1" / "history.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    rows = {row["run"]: row for row in zs.runs(folder).rows}
    assert "scores.json" in rows["ae-s0"]["problem"]
    assert "mig" not in rows["ae-s0"]
    assert rows["ae-s0"]["history.loss"] == 30.0
    assert "history.jsonl" in rows["vae-b1-s0"]["problem"]
    assert rows["vae-b1-s0"]["mig"] == 0.1
    assert rows["vae-b1-s1"]["history.loss"] == 2.0  # the last complete row


def test_the_end_of_a_long_history(tmp_path, monkeypatch):
    path = make_run(tmp_path / "a")
    rows = [{"step": k, "loss": float(k)} for k in range(2000)]
    (path / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for tail in (10, 40, 1000):  # less than a row, a row, many
        monkeypatch.setattr(index, "TAIL", tail)
        assert zs.runs(tmp_path).rows[0]["history.loss"] == 1999.0


def test_the_index_has_what_the_files_have_and_changes_with_them(folder, indexed):
    first = zs.runs(folder).rows
    assert len(indexed) == 7
    assert (folder / index.FILE).is_file()
    assert zs.runs(folder).rows == first
    assert len(indexed) == 7
    write_scores(folder / "ae-s0", {"mig": 0.9}, time=9e9)
    make_run(folder / "new", seed=5)
    rows = {row["run"]: row for row in zs.runs(folder).rows}
    assert sorted(indexed[7:]) == ["ae-s0", "new"]
    assert rows["ae-s0"]["mig"] == 0.9
    os.rename(folder / "new", folder.parent / "moved-away")
    assert len(zs.runs(folder)) == 7
    with (folder / "ae-s0" / "history.jsonl").open("a") as file:
        file.write('{"step": 101, "loss": 1.5}\n')
    rows = {row["run"]: row for row in zs.runs(folder).rows}
    assert rows["ae-s0"]["history.loss"] == 1.5


def test_an_index_of_some_runs_keeps_the_others(folder, indexed, tmp_path_factory):
    zs.runs(folder)
    out = tmp_path_factory.mktemp("out")
    write_sweep(out, ["ae-s0"], runs_folder=str(folder))
    write_scores(folder / "ae-s0", {"mig": 0.9}, time=9e9)
    zs.runs(out)
    del indexed[:]
    zs.runs(folder)
    assert indexed == []


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    place = content.index(b'"status":"finished"')
    content[place + 11] ^= 1
    path.write_bytes(content)


def change_version(path):
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_byte,
        change_version,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no database" * 500),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_a_damaged_or_foreign_index_is_done_without(folder, indexed, damage):
    rows = zs.runs(folder).rows
    damage(folder / index.FILE)
    del indexed[:]
    assert zs.runs(folder).rows == rows
    assert len(indexed) == 7


def test_a_folder_that_cannot_be_written_is_read_all_the_same(folder, indexed, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(index, "writing", refuse)
    assert len(zs.runs(folder)) == len(zs.runs(folder)) == 7
    assert len(indexed) == 14
    assert not (folder / index.FILE).exists()


def test_several_readers_at_once(folder, indexed):
    expected = zs.runs(folder).rows

    def read(k):
        if k % 3 == 0:
            (folder / index.FILE).unlink(missing_ok=True)
        return zs.runs(folder).rows

    with ThreadPoolExecutor(4) as pool:
        assert all(rows == expected for rows in pool.map(read, range(24)))
    assert not list(folder.glob(".part-*"))


def test_few_runs_leave_no_index_behind(folder):
    zs.runs(folder)
    assert not (folder / index.FILE).exists()


def test_differences_that_could_change_numbers_are_named(tmp_path):
    make_run(tmp_path / "a", scores={"mig": 0.1, "sap": 0.2})
    make_run(tmp_path / "b", seed=1, scores={"mig": 0.1, "sap": 0.2})
    assert zs.runs(tmp_path).differences() == []
    about = {"torch": "2.14.0", "ensemble": ["c", "d"], "threads": 2, "host": "elsewhere"}
    path = make_run(tmp_path / "c", seed=2, environment=about)
    write_scores(path, {"mig": 0.1}, options="[('bins', 10)]", source="other")
    write_scores(path, {"sap": 0.1}, samples=100)
    lines = zs.runs(tmp_path).differences()
    assert [line.partition(" differs")[0] for line in lines] == [
        "version of torch", "threads", "trained", "options of mig", "source code of mig",
        "samples of sap",
    ]  # fmt: skip
    assert lines[0] == "version of torch differs: 2.13.0 (2 runs), 2.14.0 (1 run)"
    assert len(zs.runs(tmp_path).differences(["sap"])) == 4


def test_data_are_told_apart_by_their_options_and_files(tmp_path):
    make_run(tmp_path / "a", data="sprites", data_options={"resolution": 32})
    make_run(tmp_path / "b", data="sprites")
    make_run(tmp_path / "c", data="/home/one/images.npy")
    assert [row["data"] for row in zs.runs(tmp_path).rows] == [
        "sprites?resolution=32", "sprites", "images.npy",
    ]  # fmt: skip
    make_run(tmp_path / "d", data="/home/two/images.npy")
    assert zs.runs(tmp_path).rows[2]["data"] == "/home/one/images.npy"
    assert zs.runs(tmp_path).varying() == ["data"]  # and not the option, which it names


def test_a_table_of_runs_loads_no_torch():
    """It would take seconds."""
    import subprocess
    import sys

    code = "import sys, zscope.tables; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_entries_say_what_was_measured_of_a_run_and_how_many_latents_it_uses(tmp_path):
    plan = {
        "run": {"model": "ae", "data": "helix", "latents": 2, "steps": 3, "options.hidden": [4]},
        "assay": {"names": ["effective-rank", "mig"], "samples": 50},
    }
    runs = zs.sweep(plan, tmp_path, jobs=1, progress=False)
    (row,) = runs.rows
    zs.assay(runs.paths[0], names=["effective-rank"], samples=20, progress=False)  # another request
    entries = zs.runs(tmp_path).entries(row["run"])
    assert sorted(entries) == ["effective-rank", "mig"]
    assert entries["effective-rank"]["samples"] == 50  # the one that the sweep asks for
    used = zs.record(zs.load(runs.paths[0]), zs.data.load("helix"), samples=50).used
    assert {entry["used"] for entry in entries.values()} == {len(used)}
