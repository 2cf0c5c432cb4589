"""Damaged files of every format that is read: the right answer, or an error that names the file.

A file is truncated, or some of its bytes are flipped, overwritten, repeated, swapped or
zeroed. Loading it then gives what the undamaged file gives, or a ZscopeError that names it.
Formats without checksums may also give other values, of a valid form. Everything else is a
failure: other exceptions, a hang, a crash of the interpreter.

Files are loaded in forked processes with limited memory, so that a crash is seen and
attributed. The long version writes its counts to tests/reference/reliability/files.data.json.
"""

import gzip
import hashlib
import io
import json
import os
import resource
import signal
import tarfile
import traceback
import warnings
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import zscope.data
from zscope import adapters, loading
from zscope.data import cars3d, celeba, columns, dsprites, mnist, mpi3d, shapes3d, smallnorb, symsol
from zscope.data.dataset import grid_factors
from zscope.errors import ZscopeError

COUNTS = Path(__file__).parents[1] / "reference" / "reliability" / "files.data.json"
SECONDS = 10  # for one file
MEMORY = 4 * 2**30  # bytes more than the process has
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 6))
IMAGES = RNG.integers(0, 256, (12, 8, 8)).astype(np.uint8)
LABELS = RNG.integers(0, 3, (12, 2))


@dataclass(frozen=True)
class Kind:
    """A format: how to write a valid file, and how to read it.

    `write(folder)` returns the path of the file that is damaged, `read(path)` arrays. Of
    `exact` formats every byte that matters has a checksum. `cost` is relative, of one try.
    """

    write: object
    read: object
    exact: bool = False
    cost: int = 1


def own(name, save, **options):
    def write(folder):
        save(folder / name)
        return folder / name

    return write, lambda path: arrays(zscope.data.load(path, **options))


def arrays(data):
    # Ids of factors too: names, kinds and sizes are part of the answer.
    facts = (data.factor_names, data.factor_kinds, data.factor_sizes, data.feature_names)
    values = [np.asarray(data.images[:]), np.frombuffer(repr(facts).encode(), np.uint8)]
    values += [] if data.factors is None else [np.asarray(data.factors)]
    assert all(np.isfinite(value).all() for value in values), "NaN in a dataset"
    return values


def save_h5(path, **how):
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=IMAGES, **how)
        file.create_dataset("factors", data=LABELS)
        file["factor_names"] = np.array(["shape", "size"], dtype="S5")


def save_table(path):
    separator = "\t" if path.suffix == ".tsv" else ","
    lines = [separator.join(["a", "b", "word", "dose"])]
    for k, row in enumerate(ROWS):
        lines.append(separator.join([f"{row[0]:.5f}", f"{row[1]:.5f}", "xyz"[k % 3], str(k % 4)]))
    path.write_text("\n".join(lines) + "\n")


def save_parquet(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = ["xyz"[k % 3] for k in range(len(ROWS))]
    table = pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1], "word": words, "dose": [0, 1] * 20})
    pq.write_table(table, path, write_page_checksum=True)


def pictures(suffix):
    def write(folder):
        from PIL import Image

        for k, image in enumerate(IMAGES[:4]):
            (folder / "all" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
            path = folder / "all" / "ab"[k % 2] / f"{k}{suffix}"
            Image.fromarray(image).save(path)
        return path

    return write, lambda path: arrays(zscope.data.load(path.parents[1]))


def published(source, files, damaged):
    """A dataset of the catalogue in miniature, one of whose files is damaged."""

    def write(folder):
        (folder / source.name).mkdir()
        for name, content in files().items():
            (folder / source.name / name).write_bytes(content)
        return folder / source.name / damaged

    return write, lambda path: arrays(zscope.data.load_source(source, path.parents[1], {}))


def idx(values):
    values = np.asarray(values, np.uint8)
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    return gzip.compress(header + values.tobytes())


TEXTS = {"title": "", "summary": "", "cite": "", "homepage": "http://home"}
DIGITS = mnist.build(
    "digits-idx",
    factor="digit",
    classes=[str(digit) for digit in range(10)],
    counts={"train": 5, "t10k": 3},
    **TEXTS,
)


def digits():
    files = {}
    for part, count in (("train", 5), ("t10k", 3)):
        files[mnist.images_file(part)] = idx(RNG.integers(0, 256, (count, 28, 28)))
        files[mnist.labels_file(part)] = idx(RNG.integers(0, 10, count))
    return files


def npz(compressed=True, **named):
    content = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(content, **named)
    return content.getvalue()


def sprites():
    classes = np.column_stack([np.zeros(8, np.int64), grid_factors((2, 2, 1, 1, 2))])
    images = RNG.integers(0, 2, (8, 64, 64)).astype(np.uint8)
    return {dsprites.FILE: npz(imgs=images, latents_values=classes * 1.0, latents_classes=classes)}


def shapes():
    import h5py

    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        images = RNG.integers(0, 256, (8, 64, 64, 3)).astype(np.uint8)
        file.create_dataset("images", data=images, chunks=(4, 64, 64, 3), compression="gzip")
        file["labels"] = grid_factors((2, 1, 2, 1, 2, 1)) / 2
    return {shapes3d.FILE: content.getvalue()}


def cars():
    from scipy.io import savemat

    car = io.BytesIO()
    grey = RNG.integers(0, 256, (128, 128, 3, 1, 1)).astype(np.uint8)
    savemat(car, {"im": np.broadcast_to(grey, (128, 128, 3, 24, 4))}, do_compression=True)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo("data/cars/car.mat")
        member.size = car.tell()
        archive.addfile(member, io.BytesIO(car.getvalue()))
    return {cars3d.FILE: content.getvalue()}


def matrix(values, magic):
    sizes = [*values.shape, *[1] * (3 - values.ndim)]
    header = b"".join(n.to_bytes(4, "little") for n in (magic, values.ndim, *sizes))
    return gzip.compress(header + values.tobytes())


def norb():
    files = {}
    for part in ("train", "test"):
        pixels = RNG.integers(0, 256, (4, 2, 96, 96)).astype("u1")
        files[smallnorb.file_name(part, "dat")] = matrix(pixels, 0x1E3D4C55)
        files[smallnorb.file_name(part, "cat")] = matrix(np.arange(4, dtype="<i4"), 0x1E3D4C54)
        info = np.arange(16, dtype="<i4").reshape(4, 4) % 5
        files[smallnorb.file_name(part, "info")] = matrix(info, 0x1E3D4C54)
    return files


def encoded(pixels, kind):
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind)
    return content.getvalue()


def faces():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for k in range(1, 4):
            face = np.full((218, 178, 3), 50 * k, np.uint8)
            archive.writestr(f"img_align_celeba/{k:06}.jpg", encoded(face, "jpeg"))
    rows = [f"{k:06}.jpg " + " ".join(RNG.choice(["-1", "1"], 40)) for k in range(1, 4)]
    return {
        celeba.ARCHIVE: content.getvalue(),
        celeba.ATTRIBUTES: "\n".join(["3", celeba.HEADER, *rows, ""]).encode(),
        celeba.PARTITION: b"000001.jpg 0\n000002.jpg 1\n000003.jpg 2\n",
    }


def solids():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for part in ("train", "test"):
            for k, shape in enumerate(symsol.SHAPES):
                pixels = np.full((224, 224, 3), 20 * k, np.uint8)
                archive.writestr(symsol.picture(part, shape, 0), encoded(pixels, "png"))
            turns = {shape: np.eye(3)[None, None] for shape in symsol.SHAPES}
            archive.writestr(f"{part}/rotations.npz", npz(**turns))
    return {symsol.FILE: content.getvalue()}


def records():
    """Damages what is known of the files of a dataset, in the user's own folder."""
    write, read = published(DIGITS, digits, mnist.images_file("train"))

    def write_records(folder):
        path = write(folder)
        read(path)
        return next((Path(os.environ["ZSCOPE_DATA"]) / "elsewhere").glob("*/provenance.json"))

    def read_again(path):
        folder = Path(json.loads(VALID[path])["folder"])
        return arrays(zscope.data.load_source(DIGITS, folder.parent, {}))

    return write_records, read_again


VALID = {}  # path -> the undamaged content


def module():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3))


def weights(name):
    def write(folder):
        from safetensors.torch import save_file

        state = module().state_dict()
        save = save_file if name.endswith("safetensors") else torch.save
        save(state, str(folder / name))
        return folder / name

    def read(path):
        model = module()
        adapters.weights.load_weights(model, path)
        return [tensor.numpy() for tensor in model.state_dict().values()]

    return write, read


def onnx_pair():
    def write(folder):
        onnx = pytest.importorskip("onnx")
        from onnx import TensorProto, helper, numpy_helper

        for name, (wide, narrow) in {"d": (3, 6), "e": (6, 3)}.items():
            real = TensorProto.FLOAT
            graph = helper.make_graph(
                [helper.make_node("MatMul", ["x", "w"], ["y"])],
                "part",
                [helper.make_tensor_value_info("x", real, ["n", wide])],
                [helper.make_tensor_value_info("y", real, ["n", narrow])],
                [numpy_helper.from_array(np.ones((wide, narrow), np.float32), "w")],
            )
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
            model.ir_version = 8
            onnx.save(model, str(folder / f"{name}.onnx"))
        return folder / "e.onnx"

    def read(path):
        model = loading.load(f"{path},{path.with_name('d.onnx')}")
        x = torch.as_tensor(ROWS, dtype=torch.float32)
        codes = model.encode(x).mean
        return [codes.numpy(), model.decode(codes).numpy()]

    return write, read


def saved_model(library, name):
    """A folder saved by pythae or diffusers, one of whose files is damaged."""

    def write(folder):
        pytest.importorskip(library)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            if library == "pythae":
                from pythae.models import VAE, VAEConfig

                VAE(VAEConfig(input_dim=(1, 4, 4), latent_dim=2)).save(str(folder / "model"))
            else:
                from diffusers import AutoencoderKL

                AutoencoderKL(
                    in_channels=1, out_channels=1, block_out_channels=(4,), latent_channels=1,
                    norm_num_groups=2, sample_size=4,
                ).save_pretrained(folder / "model")  # fmt: skip
        return folder / "model" / name

    def read(path):
        model = loading.load(path.parent)
        return [model.encode(torch.full((2, 1, 4, 4), 0.5)).mean.numpy()]

    return write, read


def codes(name):
    def write(folder):
        table = {f"z{k}": ROWS[:, k] for k in range(6)}
        if name.endswith(".npz"):
            np.savez_compressed(folder / name, codes=ROWS)
        else:
            lines = [",".join(table), *(",".join(f"{v:.4f}" for v in row) for row in ROWS)]
            (folder / name).write_text("\n".join(lines))
        return folder / name

    return write, lambda path: [columns.numbers(columns.read_columns(path), path)]


def saved(save, **named):
    return lambda path: save(path, **named)


BOTH = {"images": IMAGES, "factors": LABELS, "factor_names": np.array(["shape", "size"])}
KINDS = {
    "npy, rows": Kind(*own("x.npy", lambda path: np.save(path, ROWS))),
    "npy, pictures": Kind(*own("x.npy", lambda path: np.save(path, IMAGES))),
    "npz, stored": Kind(*own("x.npz", saved(np.savez, **BOTH)), exact=True),
    "npz, deflated": Kind(*own("x.npz", saved(np.savez_compressed, **BOTH)), exact=True),
    "HDF5, contiguous": Kind(*own("x.h5", save_h5)),
    "HDF5, chunked": Kind(*own("x.h5", saved(save_h5, chunks=(4, 8, 8), compression="gzip"))),
    "csv": Kind(*own("x.csv", save_table, factors="dose")),
    "tsv": Kind(*own("x.tsv", save_table)),
    "parquet": Kind(*own("x.parquet", save_parquet, factors="dose")),
    "codes, csv": Kind(*codes("codes.csv")),
    "codes, npz": Kind(*codes("codes.npz"), exact=True),
    "folder of png": Kind(*pictures(".png")),
    "folder of jpeg": Kind(*pictures(".jpg")),
    "folder of tiff": Kind(*pictures(".tif")),
    "folder of gif": Kind(*pictures(".gif")),
    "folder of bmp": Kind(*pictures(".bmp")),
    "mnist, images": Kind(*published(DIGITS, digits, mnist.images_file("train")), True, 3),
    "mnist, labels": Kind(*published(DIGITS, digits, mnist.labels_file("t10k")), True, 3),
    "dsprites": Kind(
        *published(dsprites.build((2, 2, 1, 1, 2)), sprites, dsprites.FILE), True, 3
    ),
    "mpi3d": Kind(
        *published(
            mpi3d.build("toy", "toy.npz", summary="", sizes=(2, 1, 1, 1, 1, 2, 2)),
            lambda: {"toy.npz": npz(images=RNG.integers(0, 256, (8, 64, 64, 3)).astype("u1"))},
            "toy.npz",
        ), True, 3
    ),
    "shapes3d": Kind(*published(shapes3d.build((2, 1, 2, 1, 2, 1)), shapes, shapes3d.FILE), cost=3),
    "cars3d": Kind(*published(cars3d.build(1), cars, cars3d.FILE), True, 10),
    "smallnorb": Kind(
        *published(
            smallnorb.build({"train": 4, "test": 4}), norb, smallnorb.file_name("train", "dat")
        ), True, 3
    ),
    "celeba, archive": Kind(
        *published(celeba.build(count=3, training=1), faces, celeba.ARCHIVE), True, 5
    ),
    "celeba, list": Kind(*published(celeba.build(count=3, training=1), faces, celeba.ATTRIBUTES)),
    "symsol": Kind(
        *published(symsol.build({"train": 1, "test": 1}), solids, symsol.FILE), True, 10
    ),
    "provenance.json": Kind(*records(), True, 3),
    "safetensors": Kind(*weights("w.safetensors")),
    "pt": Kind(*weights("w.pt"), exact=True),
    "onnx": Kind(*onnx_pair()),
    "pythae, settings": Kind(*saved_model("pythae", "model_config.json"), cost=3),
    "pythae, weights": Kind(*saved_model("pythae", "model.pt"), True, 3),
    "diffusers, settings": Kind(*saved_model("diffusers", "config.json"), cost=5),
}  # fmt: skip


def damage(content, rng):
    """The content with one or two injuries."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 3)):
        size = len(data)
        if size == 0:
            break
        # Half of them near the ends, where formats have their headers and tables.
        place = int(rng.integers(size))
        if rng.random() < 0.5:
            near = int(rng.integers(min(size, 300)))
            place = near if rng.random() < 0.5 else size - 1 - near
        length = int(rng.integers(1, max(2, min(size - place, 64))))
        piece = data[place : place + length]
        match rng.integers(8):
            case 0:
                del data[place:]
            case 1 | 2:
                for _ in range(rng.integers(1, 5)):
                    data[min(size - 1, place + int(rng.integers(8)))] ^= 1 << int(rng.integers(8))
            case 3:
                data[place : place + length] = rng.bytes(length)
            case 4:
                data[place:place] = piece
            case 5:
                other = int(rng.integers(size))
                data[place : place + length], data[other : other + length] = (
                    data[other : other + length],
                    piece,
                )
            case 6:
                data[place : place + length] = bytes(length)
            case 7:
                extreme = [b"\xff" * 8, b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"99999999999"]
                data[place : place + 4] = extreme[rng.integers(4)]
    return bytes(data)


def digest(values):
    parts = [(value.shape, value.dtype.str, hashlib.sha256(value.tobytes())) for value in values]
    return [(shape, dtype, code.hexdigest()) for shape, dtype, code in parts]


def outcome(kind, path, expected):
    try:
        values = digest(kind.read(path))
    except ZscopeError as error:
        message = str(error)
        named = path.name in message or str(path.parent) in message
        return "refused" if named else f"unnamed: {message}"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {place.name}: {error}"
    if values == expected:
        return "same"
    return "other values" if kind.exact else "other"


ALLOWED = ("same", "other", "refused")


def attack(name, folder, seeds):
    """Outcome by seed. A process reads the files, and another one takes over if it dies."""
    kind = KINDS[name]
    path = kind.write(folder)
    VALID[path] = path.read_bytes()
    expected = digest(kind.read(path))
    assert digest(kind.read(path)) == expected
    outcomes, waiting = {}, list(seeds)
    while waiting:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.close(read)
                _try_all(kind, path, waiting, expected, write)
            finally:
                os._exit(0)
        os.close(write)
        with open(read, "rb") as answers:
            lines = answers.read().decode(errors="replace").splitlines()
        status = os.waitpid(child, 0)[1]
        for line in lines:
            number, _, result = line.partition(" ")
            outcomes[int(number)] = result or f"crash {os.WTERMSIG(status)}"
        done = set(outcomes)
        assert lines, "the process died before its first file"
        waiting = [seed for seed in waiting if seed not in done]
    return outcomes


def _try_all(kind, path, seeds, expected, answers):
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends a hang, together with the process
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
    for seed in seeds:
        path.write_bytes(damage(VALID[path], np.random.default_rng([seed, len(VALID[path])])))
        os.write(answers, f"{seed} ".encode())
        signal.alarm(SECONDS)
        result = outcome(kind, path, expected)
        signal.alarm(0)
        os.write(answers, f"{' '.join(result.split())[:300]}\n".encode(errors="replace"))


def failures(name, outcomes):
    return [f"{name} {seed}: {o}" for seed, o in outcomes.items() if o not in ALLOWED]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path / "cache"))


CHEAP = [name for name, kind in KINDS.items() if kind.cost == 1]


@pytest.mark.parametrize("name", CHEAP)
def test_a_damaged_file_gives_the_right_answer_or_an_error_that_names_it(name, tmp_path):
    outcomes = attack(name, tmp_path, range(15))
    assert not failures(name, outcomes)
    assert set(outcomes.values()) != {"same"}


@pytest.mark.slow
def test_thousands_of_damaged_files(tmp_path, monkeypatch):
    counts, bad = {}, []
    for name, kind in KINDS.items():
        folder = tmp_path / hashlib.sha256(name.encode()).hexdigest()[:8]
        folder.mkdir()
        monkeypatch.setenv("ZSCOPE_DATA", str(folder / "cache"))
        outcomes = attack(name, folder, range(100, 100 + 840 // (2 + kind.cost)))
        counts[name] = dict(
            sorted(Counter(o if o in ALLOWED else "failed" for o in outcomes.values()).items())
        )
        bad += failures(name, outcomes)
    tries = sum(sum(count.values()) for count in counts.values())
    result = {"tries": tries, "failures": len(bad), "outcomes": counts}
    COUNTS.parent.mkdir(exist_ok=True)
    COUNTS.write_text(json.dumps(result, indent=2) + "\n")
    assert tries >= 6000
    assert not bad
