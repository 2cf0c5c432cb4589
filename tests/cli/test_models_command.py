"""zscope models, as a user meets it."""

import json

import pytest
from typer.testing import CliRunner

import zscope as zs
from zscope.cli.models import app
from zscope.errors import ConfigError


def said(*words):
    done = CliRunner().invoke(app, list(words))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_the_list_names_every_model_once():
    lines = said("list").splitlines()
    shown = [line.split()[0] for line in lines if line]
    for name in zs.models.names():
        assert shown.count(name.replace("-2", "-G")) == 1
    assert "sae-G" in shown
    listed = json.loads(said("list", "--json"))
    assert [entry["name"] for entry in listed] == zs.models.names()
    assert all(entry["title"] and entry["objective"] and entry["paper"] for entry in listed)


@pytest.mark.parametrize("name", zs.models.names())
def test_a_model_is_shown_with_its_loss_paper_and_every_option(name):
    out = said("info", name)
    entry = zs.models.entry(name)
    assert entry.title in out
    assert entry.formula in out
    assert entry.paper in out
    for key, option in entry.options.items():
        assert f"  {key} " in out
        assert option.help in out
    told = json.loads(said("info", name, "--json"))
    assert set(told["options"]) == set(entry.options)


def test_what_data_a_model_needs_is_said():
    assert "data with factors or labels" in said("info", "ivae")
    assert "learns from pairs" in said("info", "slow-vae")
    assert "needs" not in said("info", "vae").split("options")[0]


def test_defaults_are_shown_as_they_would_be_typed():
    out = said("info", "factor-vae")
    assert "1000,1000,1000,1000,1000,1000" in out
    assert "0.0001" in out


def test_an_unknown_name_is_met_with_a_guess():
    with pytest.raises(ConfigError, match="Did you mean beta-tcvae"):
        said("info", "beta-tc-vae")
