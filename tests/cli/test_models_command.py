"""zscope models, as a user meets it."""

import json

import pytest
from typer.testing import CliRunner

import zscope as zs
from zscope.cli import app, main
from zscope.errors import ConfigError

# A name of each form, beside those that `zscope models list` shows.
FORMS = ["xae", "cae-i", "xcvae-e", "sae-4", "adaae-4", "vlae-4", "xsae-12", "xcsae-4-i"]


def run(*words):
    """What the command says, asked by way of the whole program: `zscope models …`."""
    done = CliRunner().invoke(app, ["models", *words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_the_list_names_every_model_once():
    lines = run("list").splitlines()
    names = [line.split()[0] for line in lines if line]
    for name in zs.models.names():
        assert names.count(name.replace("-2", "-G")) == 1
    assert "sae-G" in names
    listed = json.loads(run("list", "--json"))
    assert [entry["name"] for entry in listed] == zs.models.names()
    assert all(entry["title"] and entry["objective"] and entry["paper"] for entry in listed)


@pytest.mark.parametrize("name", [*zs.models.names(), *FORMS])
def test_a_model_is_shown_with_its_loss_paper_and_every_option(name):
    out = run("info", name)
    entry = zs.models.entry(name)
    assert entry.title in out
    assert entry.formula in out
    assert entry.paper in out
    for key, option in entry.options.items():
        assert f"  {key} " in out
        assert option.help in out
    entry_json = json.loads(run("info", name, "--json"))
    assert (entry_json["name"], entry_json["objective"], entry_json["paper"]) == (
        name,
        entry.formula,
        entry.paper,
    )
    assert set(entry_json["options"]) == set(entry.options)
    for key, option in entry.options.items():
        default = list(option.default) if isinstance(option.default, tuple) else option.default
        assert entry_json["options"][key]["default"] == default


def test_a_composed_name_is_said_in_words_with_what_it_adds_to_the_loss():
    out = run("info", "xcsae-4-i")
    first = out.splitlines()[0]
    for part in ("structural decoder of 4 variables", "causal block", "invariance penalty"):
        assert part in first
    assert "+ λ L_INV" in out
    assert "+ λ L_EQV" in run("info", "xcvae-e")
    assert "L_INV" not in run("info", "xae").split("parts")[0]


def test_what_data_a_model_needs_is_said():
    assert "data with factors or labels" in run("info", "ivae")
    assert "learns from pairs" in run("info", "slow-vae")
    assert "needs" not in run("info", "vae").split("options")[0]


def test_defaults_are_shown_as_they_would_be_typed():
    assert "  256,256  " in run("info", "factor-vae")
    assert "  0.003  " in run("info", "spatial-vae")


def test_an_unknown_name_is_met_with_a_guess():
    with pytest.raises(ConfigError, match="Did you mean beta-tcvae"):
        run("info", "beta-tc-vae")


@pytest.mark.parametrize(
    ("wrong", "guess"),
    [
        ("xcsea-4-i", "xcsae-4-i"),  # with the number that was asked for
        ("vlea-12", "vlae-12"),
        ("xcae", "xcae-i"),
        ("sae", "sae-2"),
        ("VAE", "vae"),
        ("sae-0", "sae-4"),
    ],
)
def test_a_wrong_name_is_one_line_and_exit_code_one(wrong, guess, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["zscope", "models", "info", wrong])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    before, _, rest = line.partition(f"{wrong!r}" if f"{wrong!r}" in line else wrong)
    assert before != line
    assert guess in rest.replace("?", " ").replace(".", " ").split()
