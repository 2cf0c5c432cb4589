"""Settings for all tests: one thread a process, shapes checked, no global randomness."""

import gc
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Some virtual machines announce matrix units (AMX) that they do not let a process use: low
# precision would end in an illegal instruction. What they are left out of is float32 as before.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from jaxtyping import install_import_hook

# Every shape annotation in zscope is checked at every call that a test makes.
install_import_hook("zscope", "shapecheck.check")

# What collecting the tests imports stays to the end: looking for garbage in it takes seconds.
gc.disable()

from pathlib import Path  # noqa: E402

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

torch.set_num_threads(1)
settings.register_profile("zscope", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("zscope")

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def the_global_seed_is_left_alone():
    """Nothing in zscope reads or sets the global random state."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state()), "the global random state was used"


@pytest.fixture(autouse=True)
def figures_are_closed():
    """What a test draws and leaves open is not met by the next one."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path_factory, monkeypatch):
    """Tests never touch the user's cache of datasets; rendered data are shared by a session."""
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path_factory.getbasetemp() / "data"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the real MNIST and Fashion-MNIST files, where it is at hand."""
    folder = Path(os.environ.get("ZSCOPE_REAL_DATA", SHARED / "data"))
    if not (folder / "mnist").is_dir():
        pytest.skip(f"needs the real MNIST files in {folder} (set ZSCOPE_REAL_DATA)")
    return folder


@pytest.fixture(scope="session")
def real_models() -> Path:
    """The folder with two VAEs trained by other people, where it is at hand."""
    folder = Path(os.environ.get("ZSCOPE_REAL_MODELS", SHARED / "models"))
    if not (folder / "vae-mnist.safetensors").is_file():
        pytest.skip(f"needs the models in {folder} (set ZSCOPE_REAL_MODELS)")
    return folder


@pytest.fixture(scope="session")
def small_rooms(tmp_path_factory):
    """1,024 rooms at 32 x 32 pixels, in the data folder of all tests."""
    import zscope as zs

    root = tmp_path_factory.getbasetemp() / "data"
    return zs.data.load("rooms", root=root, resolution=32, pictures=1024)


@pytest.fixture(scope="session")
def spatial_vae(small_rooms, tmp_path_factory):
    """The run of a VAE with 4 x 8 x 8 latents after 200 steps on small_rooms: .model and .path."""
    import zscope as zs

    model = zs.models.build_for("spatial-vae", small_rooms)
    out = tmp_path_factory.mktemp("spatial") / "run"
    return zs.train(model, small_rooms, steps=200, batch=32, rate=2e-3, out=out, progress=False)


CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser():
    """A real one, which may not be missing where the change is judged."""
    if not Path(CHROMIUM).exists():
        how = f"no browser at {CHROMIUM}: apt-get install chromium, or set CHROMIUM to its path"
        if os.environ.get("CI"):
            pytest.fail(how)
        pytest.skip(how)
    from playwright.sync_api import sync_playwright

    without = ("gpu", "background-networking", "component-update", "sync")
    flags = ["--no-sandbox", *(f"--disable-{part}" for part in without)]
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()
