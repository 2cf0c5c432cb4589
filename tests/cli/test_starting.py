"""Nobody waits for nothing: lists, help, completion and mistyped names load no torch."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import typer
from scripts import docs_script

import zscope as zs
from zscope.assays import CATALOGUE, groups
from zscope.cli import app
from zscope.experiments import studies
from zscope.presets import PRESETS

COMMANDS = docs_script("pages").commands()
HEAVY = ["torch", "numpy", "scipy", "sklearn", "pandas", "matplotlib", "sympy", "PIL"]
# Datasets are described by code that makes arrays; everything else needs not even these.
WITH_NUMPY = [name for name in HEAVY if name != "numpy"]

# Runs commands in one new process, and says of each how it ended and what is loaded by then.
RUNNER = f"""
import json, sys
from typer.testing import CliRunner
from zscope.cli import app
from zscope.errors import ZscopeError

answers = []
for words, env in json.load(sys.stdin):
    done = CliRunner().invoke(app, words, env=env, prog_name="zscope")
    error = done.exception if isinstance(done.exception, ZscopeError) else None
    if error is None and done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    loaded = [name for name in {HEAVY} if name in sys.modules]
    answers.append([done.exit_code, str(error) if error else done.output, loaded])
print(json.dumps(answers))
"""


def run_all(*commands, env=None):
    """(exit code, output or error, heavy packages loaded by then) of each, in one process."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps([[list(words), env or {}] for words in commands]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def complete(*lines):
    """What Tab offers at the end of each line, with what is loaded by then."""
    answers = []
    for line in lines:
        words = line.split(" ")
        env = {
            "_ZSCOPE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
        ((code, output, loaded),) = run_all((), env=env)
        assert code == 0, output
        answers.append((output.split(), loaded))
    return answers


def test_help_of_every_command_loads_nothing_heavy():
    answers = run_all(["--help"], *([*words, "--help"] for words in COMMANDS))
    for words, (code, output, loaded) in zip([(), *COMMANDS], answers, strict=True):
        assert code == 0, words
        assert " ".join(["Usage: zscope", *words]) in output
        assert not loaded, words
    for words in COMMANDS:
        assert words[-1] in answers[0][1] or len(words) > 1


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("--version",), []),
        (("models", "list"), []),
        (("models", "list", "--json"), []),
        (("models", "presets"), []),
        (("assay", "--list"), []),
        (("study", "list"), []),
        (("study", "list", "--json"), []),
        (("data", "list"), ["numpy"]),
        (("data", "list", "--json"), ["numpy"]),
        (("data", "info", "mnist"), ["numpy"]),
    ],
)
def test_a_list_loads_nothing_that_it_does_not_need(words, allowed):
    ((code, output, loaded),) = run_all(words)
    assert code == 0, output
    assert output.strip()
    assert loaded == allowed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("models", "info", "betavae"), "models: no model is called 'betavae'. Did you mean"),
        (("train", "bta-vae", "sprites"), "models: no model is called 'bta-vae'. Did you mean"),
        (("train", "vae", "sprits"), "data: there is no dataset 'sprits'. Did you mean sprites"),
        (("fondue", "sprits"), "data: there is no dataset 'sprits'. Did you mean sprites"),
        (("fondue", "sprites", "--model", "vea"), "models: no model is called 'vea'. Did you mean"),
        (("elbow", "sprits", "--sizes", "2,3"), "data: there is no dataset 'sprits'. Did you"),
        (("beta", "sprites", "--betas", "1", "--latents", "3", "--model", "vea"),
         "models: no model is called 'vea'. Did you mean"),
        (("extrapolate", "vae", "sprits?x=1", "--leave-out", "shape=0"),
         "data: there is no dataset 'sprits'. Did you mean sprites"),
        (("data", "perturb", "sprits", "--epsilon", "0.1"),
         "data: there is no dataset 'sprits'. Did you mean sprites"),
        (("data", "info", "mnits"), "data: there is no dataset 'mnits'. Did you mean mnist"),
        (("data", "fetch", "mnits"), "data: there is no dataset 'mnits'. Did you mean mnist"),
        (("assay", "runs/x", "migg"), "assay: no assay is called 'migg'. Did you mean mig"),
        (("report", "runs/x", "migg"), "report: there is no file or folder 'migg' with a further "
         "model, and no assay is called 'migg'. Did you mean mig"),
        (("score", "x.npy", "--only", "migg"), "score: no score is called 'migg'. Did you mean"),
        (("study", "run", "regime-typs"), "study: no study is called 'regime-typs'. Did you mean"),
        (("study", "plan", "regime-typs"), "study: no study is called 'regime-typs'. Did you mean"),
    ],
)  # fmt: skip
def test_a_mistyped_name_is_refused_before_torch_is_loaded(words, message):
    ((code, error, loaded),) = run_all(words)
    assert code == 1
    assert error.startswith(message)
    assert set(loaded) <= {"numpy"}


def test_names_and_settings_load_no_torch_in_python():
    code = (
        "import sys, zscope as zs\n"
        "zs.data.names(), zs.data.source('mnist'), zs.models.names(), zs.models.about('sae-4')\n"
        "zs.training.TrainConfig, zs.assays.groups()\n"
        "from zscope.experiments import studies\n"
        "studies.names(), studies.outline('ima')\n"
        f"assert not {set(WITH_NUMPY)} & set(sys.modules)\n"
        "zs.experiments.fondue, zs.training.train, zs.models.build\n"
        "assert 'torch' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory):
    data = zs.data.load("digits")
    model = zs.models.build("vae", shape=data.shape, latents=3, hidden=(8,))
    folder = tmp_path_factory.mktemp("runs") / "digits"
    zs.train(model, data, steps=100, rate=1e-2, out=folder, progress=False)
    return folder


def test_one_assay_of_a_run_loads_torch_and_no_more(run):
    """Nor do the digits, which lie in a file of scikit-learn."""
    ((code, output, loaded),) = run_all(("assay", str(run), "variable-types", "--quiet"))
    assert code == 0
    assert "variable-types" in output
    assert loaded == ["torch", "numpy"]


def test_what_an_assay_prints_is_what_the_whole_report_says(run):
    """The printed report leaves out pictures; its findings and scores are those of the page."""
    (brief, whole) = run_all(
        ("assay", str(run), "variable-types", "--quiet"),
        ("assay", str(run), "variable-types", "--quiet", "--json"),
    )
    content = json.loads(whole[1])
    for finding in content["findings"]:
        assert finding["sentence"] in brief[1]
    report = zs.assay(str(run), names=["variable-types"], progress=False)
    assert all("traversal" in row for row in report.latents)
    about = [(row["latent"], row.get("factor")) for row in report.latents]
    assert about == [(row["latent"], row.get("factor")) for row in content["latents"]]
    assert "digit" in dict(about).values()


# The lists, against what they stand for.


@pytest.mark.parametrize("name", [*zs.models.names(), "xae", "sae-4", "vlae-3", "xcsae-12-i"])
def test_what_lists_say_of_a_model_is_what_its_entry_says(name):
    about, entry = zs.models.about(name), zs.models.entry(name)
    assert vars(about).items() <= vars(entry).items()
    if name in zs.models.CATALOGUE:
        module, attribute = zs.models.CATALOGUE[name].split(":")
        spec = getattr(__import__(f"zscope.models.{module}", fromlist=[attribute]), attribute)
        assert vars(about).items() <= vars(spec).items()


@pytest.mark.parametrize("name", studies.names())
def test_what_lists_say_of_a_study_is_what_it_says_itself(name):
    outline, study = studies.outline(name), studies.load(name)
    for field in studies.LISTED:
        assert getattr(outline, field) == getattr(study, field), field
    assert study.name == name
    assert outline.plan("small") == study.plan("small")


@pytest.mark.parametrize("name", CATALOGUE)
def test_what_lists_say_of_an_assay_is_what_its_entry_says(name):
    listed = CATALOGUE[name]
    module = sys.modules.get(listed.module) or __import__(listed.module, fromlist=["ENTRY"])
    entry = module.ENTRIES[name] if hasattr(module, "ENTRIES") else module.ENTRY
    given = {key: value for key, value in vars(entry).items() if value not in ("", {})}
    assert given.items() <= vars(listed).items()


# Completion.


def test_tab_completes_names_without_torch():
    answers = complete(
        "zscope ", "zscope study r", "zscope train ", "zscope train vae ", "zscope assay runs/x ",
        "zscope score a.npy --only ", "zscope study run ", "zscope train vae x --preset ",
        "zscope train vae sprites --pre",
    )  # fmt: skip
    usual = [name for name, entry in CATALOGUE.items() if not entry.compares]
    expected = [
        {words[0] for words in COMMANDS},
        {"run"},
        set(zs.models.names()),
        set(zs.data.names()),
        {*usual, *groups()},
        set(groups()["disentanglement"]),
        {*studies.names(), "all"},
        set(PRESETS),
        {"--preset", "--precision"},
    ]
    for (offered, loaded), names in zip(answers, expected, strict=True):
        assert set(offered) == names
        assert set(loaded) <= {"numpy"}


def test_every_name_that_a_catalogue_has_is_completed():
    """Wherever help speaks of a list of names, or of a model to train."""

    def parameters(command, words):
        for child, each in getattr(command, "commands", {}).items():
            yield from parameters(each, (*words, child))
        yield from ((words, each) for each in getattr(command, "params", ()))

    examples = {
        "`zscope data list`": "sprites", "`zscope models list`": "beta-vae",
        "`zscope study list`": "regime-types", "The name of a dataset": "sprites",
        "model to train": "beta-vae", "Assays or groups": "variable-types",
        "Settings of a paper": "structural-2023",
    }  # fmt: skip
    seen = set()
    for words, parameter in parameters(typer.main.get_command(app), ()):
        for text, name in examples.items():
            if text in (getattr(parameter, "help", None) or ""):
                context = typer.Context(typer.main.get_command(app))
                offered = parameter.shell_complete(context, name[:4])
                assert name in [each.value for each in offered], (words, parameter.name)
                seen.add(text)
    assert seen == set(examples)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_by_the_script_that_the_program_writes(tmp_path):
    program = tmp_path / "zscope"
    program.write_text(f"#!{sys.executable}\nfrom zscope.cli import main\nmain()\n")
    program.chmod(0o755)
    script = (
        'eval "$(_ZSCOPE_COMPLETE=source_bash zscope)"\n'
        "COMP_WORDS=(zscope data info spr) COMP_CWORD=3\n"
        '_zscope_completion zscope && echo "${COMPREPLY[@]}"\n'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [name for name in zs.data.names() if name.startswith("spr")]
    assert not done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_that_it_can_read(shell, tmp_path):
    program = tmp_path / "zscope"
    program.write_text("from zscope.cli import main\nmain()\n")
    done = subprocess.run(
        [sys.executable, program],
        env=os.environ | {"_ZSCOPE_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "_COMPLETE=complete_" + shell in done.stdout
    if shutil.which(shell):
        (tmp_path / "script").write_text(done.stdout)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)
