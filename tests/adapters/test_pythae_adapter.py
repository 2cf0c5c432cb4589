"""pythae models and folders as autoencoders."""

import pytest
import torch
from small_hub import keep

import zscope as zs
from zscope.errors import InterfaceError

pythae = pytest.importorskip("pythae", reason="needs pythae: make test-adapters")

X = torch.rand(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def build(name, **options):
    from pythae import models

    settings = f"{name}Config" if hasattr(models, f"{name}Config") else f"{name}_Config"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = getattr(models, settings)(input_dim=(1, 6, 6), latent_dim=3, **options)
        return getattr(models, name)(config).eval()


@pytest.mark.parametrize(
    ("name", "deterministic", "prior"),
    [
        ("VAE", False, "normal"),
        ("BetaTCVAE", False, "normal"),
        ("INFOVAE_MMD", False, "normal"),
        ("AE", True, None),
        ("WAE_MMD", True, None),
    ],
)
def test_a_model_is_recognised_and_read_right(name, deterministic, prior):
    theirs = build(name)
    model = zs.load(theirs)
    posterior = model.encode(X)
    with torch.no_grad():
        expected = theirs.encoder(X)
        decoded = theirs.decoder(expected.embedding).reconstruction
    assert torch.equal(posterior.mean, expected.embedding)
    assert posterior.deterministic == deterministic
    assert (model.latents, model.prior, model.name) == (3, prior, name)
    if not deterministic:
        assert torch.allclose(posterior.variance, expected.log_covariance.exp(), rtol=1e-5)
    assert torch.equal(model.decode(posterior.mean), decoded)


def test_a_saved_folder_is_loaded_without_running_code(tmp_path):
    theirs = build("VAE")
    theirs.save(str(tmp_path))
    model = zs.load(str(tmp_path))
    assert torch.equal(model.encode(X).mean, zs.load(theirs).encode(X).mean)


def test_a_model_on_the_hub_has_weights_as_safetensors(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    vae = build("VAE")
    vae.save(str(tmp_path / "saved"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    keep(tmp_path / "cache", "org/pickled", tmp_path / "saved")
    with pytest.raises(InterfaceError, match=r"can run code when it is opened \(model.pt\)"):
        zs.load("hf:org/pickled")
    save_file(vae.state_dict(), tmp_path / "saved" / "model.safetensors")
    (tmp_path / "saved" / "model.pt").write_bytes(b"another model")
    keep(tmp_path / "cache", "org/safe", tmp_path / "saved")
    assert torch.equal(zs.load("hf:org/safe").encode(X).mean, zs.load(vae).encode(X).mean)


def test_a_folder_with_pickled_networks_is_refused(tmp_path):
    build("VAE").save(str(tmp_path))
    (tmp_path / "encoder.pkl").write_bytes(b"")
    with pytest.raises(InterfaceError, match="encoder.pkl, pickles that run code"):
        zs.load(tmp_path)


class Evil:
    def __reduce__(self):
        return (print, ("code was run",))


def test_code_in_the_weights_is_never_run(tmp_path, capsys):
    build("VAE").save(str(tmp_path))
    torch.save({"model_state_dict": Evil()}, tmp_path / "model.pt")
    with pytest.raises(InterfaceError, match="never code"):
        zs.load(tmp_path)
    assert "code was run" not in capsys.readouterr().out


def test_what_is_no_gaussian_posterior_and_what_is_damaged_is_refused(tmp_path):
    with pytest.raises(InterfaceError, match="SVAE lies on a sphere"):
        zs.load(build("SVAE"))
    build("VAE").save(str(tmp_path))
    (tmp_path / "model_config.json").write_text('{"name": "NothingConfig"}')
    with pytest.raises(InterfaceError, match="does not describe a model that pythae can build"):
        zs.load(tmp_path)


def test_a_report_can_be_made_of_it():
    report = zs.assay(build("VAE"), X, names=["response-matrix", "variable-types"])
    assert not report.failed
    assert report.title == "VAE"


@pytest.mark.parametrize("command", ["assay", "report", "explore"])
def test_a_folder_without_data_is_asked_for_data(tmp_path, monkeypatch, capsys, command):
    from zscope.cli import main

    build("VAE").save(str(tmp_path))
    monkeypatch.setattr("sys.argv", ["zscope", command, str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert "Name them with --data" in " ".join(capsys.readouterr().err.split())
