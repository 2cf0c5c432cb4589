"""An interrupt ends a command with what it saved and how to go on."""

import sys

import pytest

from zscope import cli


@pytest.mark.parametrize(
    ("said", "printed"),
    [("perturb: stopped and saved after round 7.", "perturb: stopped and saved after round 7."),
     ("", "zscope: stopped.")],
)  # fmt: skip
def test_what_an_interrupted_command_says_is_printed(monkeypatch, capsys, said, printed):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt(said)

    monkeypatch.setattr("zscope.experiments.perturb", interrupted)
    words = ["zscope", "data", "perturb", "sprites", "--epsilon", "0.1", "--data-option"]
    monkeypatch.setattr(sys, "argv", [*words, "resolution=8"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err.strip() == printed


def test_other_exits_say_nothing_more(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["zscope", "--version"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    assert capsys.readouterr().err == ""
