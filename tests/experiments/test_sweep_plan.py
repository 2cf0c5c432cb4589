"""The plan of a sweep: what a file means, and what is refused before anything starts."""

import json

import numpy as np
import pytest

from zscope.assays import CATALOGUE
from zscope.collection.columns import WORDS, columns_of
from zscope.collection.index import fields_of
from zscope.errors import ConfigError
from zscope.experiments.fields import OWN, SETTINGS
from zscope.experiments.sweeps.address import address
from zscope.experiments.sweeps.plan import read_plan

TRAIN = {"steps": 20, "latents": 2, "options.hidden": [8]}
EXAMPLE = """
[train]
steps = 20
rate = 1e-3
latents = 3
options.hidden = [8]

[grid]
model = ["beta-vae", "beta-tcvae"]
data = ["helix", "helix?samples=500"]
"options.beta" = [1, 2, 4, 8]
seed = [0, 1, 2, 3, 4]

[[run]]
model = "ae"

[assay]
names = ["variable-types", "mig"]
samples = 500
"""


def grid(**fields):
    return {"train": TRAIN, "grid": {"model": ["beta-vae"], "data": ["helix"], **fields}}


def names(plan):
    return [run.name for run in plan.runs]


def test_a_grid_is_the_product_of_its_lists_and_single_runs_are_added(tmp_path):
    file = tmp_path / "beta.toml"
    file.write_text(EXAMPLE)
    plan = read_plan(file)
    assert len(plan.runs) == 2 * 2 * 4 * 5 + 1
    assert len(set(names(plan))) == len(plan.runs)
    first, last = plan.runs[0], plan.runs[-1]
    assert first.name.startswith("beta-vae-helix-b1-s0-")
    assert first.config.model.options["beta"] == 1
    assert first.config.model.options["seed"] == first.config.seed == 0
    assert first.config.rate == 1e-3
    assert plan.runs[-2].config.data.options == {"samples": 500}
    # A single run takes what it does not name from the first values of the grid.
    assert last.config.model.name == "ae"
    assert last.config.data.name == "helix"
    assert last.config.data.options == {}
    assert "beta" not in last.config.model.options
    assert plan.assay.names == ["variable-types", "mig"]
    assert plan.assay.samples == 500


def test_json_and_a_dict_mean_the_same_as_toml(tmp_path):
    content = grid(seed=[0, 1])
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(content))
    assert names(read_plan(file)) == names(read_plan(content))


def test_the_address_is_of_the_configuration_alone():
    plain = read_plan(grid(seed=[0, 1]))
    again = read_plan({**grid(seed=[0]), "assay": {"names": ["mig"]}})
    assert plain.runs[0].name == again.runs[0].name
    others = [
        grid(seed=[0], rate=[1e-3]),
        grid(seed=[0], **{"options.beta": [7]}),
        grid(seed=[0], steps=[21]),
        grid(seed=[0], data=["helix?samples=400"]),
    ]
    hashes = {read_plan(each).runs[0].address for each in others}
    assert len(hashes | {plain.runs[0].address}) == 5
    # What does not change the weights does not change the address.
    snapshots = read_plan(grid(seed=[0], snapshot_every=[5], checkpoint_every=[7], device=["cpu"]))
    assert snapshots.runs[0].address == plain.runs[0].address


def test_the_default_written_out_is_the_same_run():
    written = read_plan(grid(**{"options.beta": [4.0]}))  # the default of beta-vae
    assert written.runs[0].address == read_plan(grid()).runs[0].address


def address_of(**fields):
    """The address of the only run of a plan with these fields."""
    fields = {"model": "beta-vae", "data": "helix", **TRAIN, **fields}
    return read_plan({"run": [fields]}).runs[0].address


@pytest.mark.parametrize(
    "same",
    [
        [{}, {"data": "helix?noise=0.1"}, {"data": "helix?samples=1024.0&seed=0"}],
        [{}, {"data": "helix?amplitude=1"}, {"data": "helix?amplitude=[1, 1, 1.0]"}],
        [{"data": f"helix?noise={noise}"} for noise in ("1", "1.0", "1e0", '"1"')],
        [{"data": f"helix?{pair}"} for pair in ("samples=500&noise=1", "noise=1.0&samples=500")],
        [{"data": f"helix?amplitude={a}"} for a in ("1,1,2", "[1.0,1,2]", "[1, 1, 2]")],
        [{"data": data} for data in ("square-linear?rho=2&samples=500",
                                     "square-linear?samples=500")],
        [{"options.beta": beta} for beta in (4, 4.0, "4", None, np.float32(4), np.int64(4))],
        [{"options.hidden": hidden} for hidden in ([16], (16,), 16, 16.0, "16", np.array([16]))],
        [{"options.decoder_hidden": [6]}, {"options.decoder-hidden": [6]},
         {"options": {"decoder-hidden": 6}}],
        [{"rate": rate} for rate in (1, 1.0, np.float64(1), np.int8(1))],
        [{}, {"rate": 1e-4, "batch": 64, "optimiser": "adam", "seed": 0, "warmup": 0}],
        [{"seed": 3}, {"seed": np.int64(3)}],
        [{"split": [0.5, 0.5]}, {"split": (0.5, 0.5)}, {"split": np.array([0.5, 0.5])}],
    ],
    ids=lambda same: str(same[-1]),
)  # fmt: skip
def test_a_run_has_one_address_whoever_writes_it(same):
    assert len({address_of(**fields) for fields in same}) == 1


def test_runs_that_differ_have_different_addresses():
    fields = [{"data": f"helix?{options}"} for options in (
        "noise=1", "noise=2", "frequency=2", "seed=1", "seed=2", "amplitude=2",
        "amplitude=[2,2,1]", "amplitude=[1,2,2]", "samples=500",
    )]  # fmt: skip
    fields += [{}, {"data": "square-linear"}, {"rate": 1.0}, {"clip": 1.0}, {"options.beta": 1}]
    fields += [{"options.hidden": sizes} for sizes in ([1], [1, 1], [2])]
    assert len({address_of(**each) for each in fields}) == len(fields)


SPRITES = "resolution=8&scale=1&position_x=2&position_y=2"


def test_chosen_values_of_factors_count_and_not_how_they_were_chosen():
    def of(*options):
        texts = ("&".join(["sprites?" + SPRITES, *each.split()]) for each in options)
        return {address_of(data=data) for data in texts}

    assert len(of("orientation=4", "orientation=0,10,20,30", "orientation=[0,10,20,30]",
                  "orientation=4 shape=3", "orientation=4 shape=square,ellipse,heart",
                  "orientation=4 antialias=false", "orientation=4 antialias=0")) == 1  # fmt: skip
    # A count is not a list of one position, and the order of a list is that of the rows.
    assert len(of("orientation=4", "orientation=[4]", "orientation=[10,0,20,30]",
                  "orientation=4 shape=2", "orientation=4 shape=[2]", "orientation=4 shape=[2,1]",
                  "orientation=4 antialias=true")) == 7  # fmt: skip
    assert of("shape=square orientation=2") == of("shape=[0] orientation=2")


def test_one_configuration_written_twice_is_refused_as_one_run():
    with pytest.raises(ConfigError, match="noise=1.0.*is the same run as.*noise=1"):
        read_plan(grid(data=["helix?noise=1", "helix?noise=1.0"]))
    with pytest.raises(ConfigError, match="gives options.decoder_hidden twice, as 6 and as 7"):
        read_plan({"run": [{"options.decoder-hidden": 6, "options.decoder_hidden": 7}]})


def test_options_of_data_of_the_wrong_kind_are_refused_in_one_line():
    for options in ("seed=0.5", "noise=much", "amplitude=1,2", "frequency=[]"):
        with pytest.raises(ConfigError, match="helix"):
            address_of(data=f"helix?{options}")


def test_options_of_own_files_have_one_form_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cells.csv").write_text("a,b,1,1.0\n" + "1,2,0,0\n3,4,1,1\n2,0,0,1\n0,1,1,0\n")

    def of(*options):
        return {address_of(data=f"./cells.csv?{each}", batch=2) for each in options}

    assert len(of("factors=1&kinds=categorical", 'factors=["1"]&kinds=categorical',
                  "factors=1&kinds=1=categorical", "standardise=true&factors=1&kinds=categorical",
                  )) == 2  # fmt: skip
    assert len(of("factors=b,1", 'factors=["b","1"]', 'factors=["b",1]&standardise=true')) == 1
    # Columns are named by texts: 1 and 1.0 are two of them here.
    assert len(of("factors=1", "factors=1.0", "factors=b", "factors=1&standardise=false")) == 4


def test_files_that_options_name_are_addressed_by_content(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    for place, labels in (("a", np.arange(50) % 2), ("b", np.arange(50) % 2), ("c", np.ones(50))):
        (tmp_path / place).mkdir()
        np.save(tmp_path / place / "rows.npy", rows)
        np.save(tmp_path / place / "labels.npy", labels.astype(np.int64))
    monkeypatch.chdir(tmp_path)

    def run(place, factors):
        return read_plan(grid(data=[f"{place}/rows.npy?factors={factors}"])).runs[0]

    first = run("a", "labels.npy")  # next to the data
    assert first.address == run("a", "a/labels.npy").address == run("b", "labels.npy").address
    assert first.address == run("a", "b/labels.npy").address
    assert first.address != run("c", "labels.npy").address
    # A worker is in another folder.
    monkeypatch.chdir("/")
    assert address(first.config) == first.address


def test_own_files_are_addressed_by_content(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", rows)
    np.save(tmp_path / "c.npy", rows + 1)
    first, copy, other = (
        read_plan(grid(data=[str(tmp_path / f"{name}.npy")])).runs[0] for name in "abc"
    )
    assert first.address == copy.address != other.address
    np.save(tmp_path / "a.npy", rows + 1)
    assert address(first.config) == other.address


def test_small_networks_of_one_shape_are_trained_together():
    plan = read_plan(grid(model=["beta-vae", "vae"], seed=[0, 1, 2]) | {"grid": {
        "model": ["beta-vae"], "data": ["helix"], "options.beta": [1, 4], "seed": [0, 1, 2],
    }})  # fmt: skip
    assert [len(group) for group in plan.groups] == [6]
    assert read_plan(grid(seed=[0, 1]), ensemble=False).groups == []
    assert read_plan(grid(seed=[0])).groups == []
    rates = read_plan(grid(seed=[0, 1], rate=[1e-3, 1e-4]))
    assert [len(group) for group in rates.groups] == [4]
    batches = read_plan(grid(seed=[0, 1], batch=[16, 32]))
    assert [len(group) for group in batches.groups] == [2, 2]


def test_runs_that_were_planned_together_stay_together():
    before = read_plan(grid(seed=[0, 1]))
    after = read_plan(grid(seed=[0, 1, 2, 3]), groups=before.groups)
    assert after.groups == [before.groups[0], names(after)[2:]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"gird": {}}, r"no part \[gird\]. Did you mean grid"),
        ({}, "describes no run"),
        ({"run": [{"model": "aee", "data": "helix"}]}, r"\[\[run\]\] 1: model=aee.*Did you mean"),
        ({"run": [{"modle": "ae"}]}, r"\[\[run\]\] 1 has a field 'modle'"),
        (grid(sede=[0]), r"\[grid\] has a field 'sede'.* Did you mean seed"),
        (grid(seed=[]), "seed is an empty list"),
        (grid(seed=[0, 0]), "seed=0 is the same run as .grid. seed=0"),
        (grid(seed=[0.5]), "seed=0.5"),
        (grid(model=["vae"], **{"options.beta": [1, 2]}), "options.beta=1: .*no option 'beta'"),
        (grid(**{"options.latents": [3]}), "latents is not an option of a model"),
        ({**grid(), "train": {**TRAIN, "options": {"shape": [3]}}}, "shape is not an option"),
        (grid(**{"options.seed": [3]}), "options.seed would give .* the same initial weights"),
        (grid(model=["beta-vea"]), "no model is called 'beta-vea'. Did you mean beta-vae"),
        (grid(data=["helxi"]), "no dataset 'helxi'. Did you mean helix"),
        (grid(data=["helix?smaples=3"]), "no option 'smaples'. Did you mean samples"),
        (grid(rate=[-1]), r"rate=-1: .*rate: Input should be greater than 0"),
        (grid(**{"options.beta": ["four"]}), "beta='four'"),
        (grid(epochs=[2]), "steps=20 and epochs=2"),
        ({"train": TRAIN, "grid": {"model": ["vae"]}}, "data=None; expected a name"),
        ({**grid(), "assay": {"names": ["mgi"]}}, r"\[assay\] .*'mgi'. Did you mean mig"),
        ({**grid(), "assay": {"name": ["mig"]}}, r"\[assay\] has 'name'. Did you mean names"),
        ({**grid(), "assay": {"names": ["mig"], "samples": 0}}, "samples=0"),
        (
            {**grid(), "assay": {"names": ["mig"], "options": {"dci": {"seed": 1}}}},
            r"\[assay\] options",
        ),
        ({**grid(), "run": [{"model": "ae", "seed": [1]}]}, r"\[\[run\]\] 1"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(content, message):
    with pytest.raises(ConfigError, match=message):
        read_plan(content)


def test_a_model_that_needs_factors_is_refused_on_data_without(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(50, 4)))
    file = str(tmp_path / "rows.npy")
    with pytest.raises(ConfigError, match=r"model=ivae.*needs an auxiliary variable.*no factors"):
        read_plan(grid(model=["vae", "ivae"], data=[file]))


def test_a_file_that_is_not_toml_says_where(tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text("[grid]\nmodel = [vae]\n")
    with pytest.raises(ConfigError, match=r"bad.toml is not TOML .*line 2"):
        read_plan(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan(tmp_path / "none.toml")


def test_assays_that_apply_to_no_run_are_refused_before_anything_is_trained(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(50, 4)))
    own, other = {"data": [f"{tmp_path}/rows.npy"]}, {"data": [f"{tmp_path}/rows.npy", "helix"]}

    def plan(names, **fields):
        return {**grid(**fields), "assay": {"names": names, "samples": 50}}

    with pytest.raises(ConfigError, match="mig cannot be measured of any run: the data come with"):
        read_plan(plan(["variable-types", "mig"], **own))
    with pytest.raises(ConfigError, match="variable-types cannot be measured of any run: the enc"):
        read_plan(plan(["variable-types"], model=["ae"]))
    with pytest.raises(ConfigError, match="cannot be measured of any run"):
        read_plan(plan(["disentanglement"], **own))
    read_plan(plan(["variable-types", "mig"], **other))  # of some runs
    read_plan(plan(["regime", "disentanglement"], **own))  # of a group, what applies


def test_values_that_an_assay_does_not_take_are_refused_before_anything_is_trained():
    def plan(samples=200, **options):
        assay = {"names": ["variable-types", "intrinsic-dimension"], "samples": samples}
        return {**grid(), "assay": {**assay, "options": options}}

    with pytest.raises(ConfigError, match=r"\[assay\].*alpha=0.5 must lie between 0 and 0.5"):
        read_plan(plan(**{"variable-types": {"alpha": 0.5}}))
    read_plan(plan(**{"variable-types": {"alpha": 0.2}}))
    # More than the trial has, and fewer than there will be.
    read_plan(plan(1000, **{"intrinsic-dimension": {"neighbours": 400}}))


def test_every_field_of_a_plan_is_a_column_by_its_name():
    given = {
        "model": "beta-vae", "data": "helix", "latents": 2, "epochs": 1, "rate": 1e-3, "batch": 32,
        "split": [0.8, 0.2], "seed": 3, "optimiser": "adam", "schedule": "halving",
        "halve_every": 5, "warmup": 2, "clip": 1.0, "precision": "float32", "device": "cpu",
        "devices": 1, "log_every": 10, "checkpoint_every": 10, "snapshots": [3],
        "snapshot_every": 5, "options.hidden": [6], "options.beta": 2.0, "freeze": "encoder",
        "start": {"epochs": 2}, "leave_out": {"strand": [0]},
    }  # fmt: skip
    _, run = read_plan({"run": given}).runs
    words = {key: run.fields[key] for key in WORDS if key in run.fields}
    fields = {**fields_of(run.config.model_dump()), **words}
    columns = columns_of([{"fields": fields}])
    assert {*given, "steps", "preset"} >= {*OWN, *SETTINGS}  # none is forgotten here
    for name in given:
        assert columns.resolve(name) in (name, name.removeprefix("options."))
    assert run.fields["split"] == fields["split"] == [0.8, 0.2]
    assert not {*OWN, *SETTINGS} & {*CATALOGUE}  # nor would an assay take its name
