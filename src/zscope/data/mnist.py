"""MNIST handwritten digits and Fashion-MNIST: 28 x 28 grey pictures in ten classes.

The publishers' four idx files each, LeCun, Cortes and Burges 1998; Xiao, Rasul and
Vollgraf, arXiv:1708.07747. Hashes and addresses as in TensorFlow Datasets' checksums
(mnist.txt, fashion_mnist.txt) and torchvision's mnist.py.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.dataset import Dataset
from zscope.data.fetching import require_files
from zscope.data.source import Factor, File, Source, factor_arguments, one_of, pixels
from zscope.data.unpacking import open_gzip, read_rows, unpack
from zscope.errors import DataError

__all__ = ["FASHION", "MNIST", "build"]

SIDE = 28
PARTS = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}


def images_file(part: str) -> str:
    return f"{part}-images-idx3-ubyte.gz"


def labels_file(part: str) -> str:
    return f"{part}-labels-idx1-ubyte.gz"


def read_idx_header(stream: Any, name: str) -> tuple[int, ...]:
    """Read the header of an idx file of bytes: the shape of the array that follows."""
    start = stream.read(4)
    if len(start) < 4 or start[:3] != b"\0\0\x08":
        raise DataError(
            f"{name}: starts with {start.hex() or 'nothing'}, but an idx file of bytes starts with "
            "000008. It is another kind of file: get the publisher's."
        )
    return tuple(int.from_bytes(stream.read(4), "big") for _ in range(start[3]))


def check_idx(path: Path, *, shape: tuple[int, ...]) -> None:
    """Check that a file is a complete gzipped idx file of bytes with this shape."""
    with open_gzip(path) as stream:
        actual = read_idx_header(stream, path.name)
        if actual != shape:
            raise DataError(
                f"{path.name}: expected an array of {shape}, got {actual}. Another dataset?"
            )
        for rows in read_rows(stream, shape, np.uint8, path.name):
            if len(shape) == 1 and rows.max() > 9:
                raise DataError(f"{path.name}: expected labels from 0 to 9, got {rows.max()}.")
        if stream.read(1):
            raise DataError(f"{path.name}: has more than {shape} numbers. Fetch it again.")


def build(
    name: str,
    *,
    factor: str,
    classes: Sequence[str],
    counts: dict[str, int],
    file_facts: dict[str, dict[str, Any]] | None = None,
    addresses: Sequence[str] = (),
    **about: Any,
) -> Source:
    """The Source of a dataset of this family; `file_facts` holds sizes and hashes by file."""
    files = []
    for part, count in counts.items():
        shapes = {images_file(part): (count, SIDE, SIDE), labels_file(part): (count,)}
        for file, shape in shapes.items():
            urls = [address + file for address in addresses]
            files.append(
                File(
                    file,
                    partial(check_idx, shape=shape),
                    url=urls[0] if urls else None,
                    mirrors=tuple(urls[1:]),
                    **(file_facts or {}).get(file, {}),
                )
            )

    def load(folder: Path, *, part: str = "train", resolution: Any = None) -> Dataset:
        halves = PARTS[one_of(name, "part", part, list(PARTS))]
        side = None if resolution is None else pixels(name, "resolution", resolution)
        records = require_files(source, folder)

        def pieces() -> Iterator[np.ndarray]:
            for half in halves:
                with open_gzip(folder / images_file(half)) as stream:
                    shape = read_idx_header(stream, images_file(half))
                    for rows in read_rows(stream, shape, np.uint8, name):
                        yield rows[:, None]

        labels: list[np.ndarray] = []
        for half in halves:
            with open_gzip(folder / labels_file(half)) as stream:
                shape = read_idx_header(stream, labels_file(half))
                labels.extend(read_rows(stream, shape, np.uint8, name))
        images = unpack(
            name,
            folder,
            [records[images_file(half)] for half in halves],
            (sum(counts[half] for half in halves), 1, SIDE, SIDE),
            pieces,
            variant=part,
            resolution=side,
        )
        factors = np.concatenate(labels).astype(np.int64)[:, None]
        return Dataset(name, images, factors, **factor_arguments(source.factors))

    source = Source(
        name=name,
        load=load,
        files=tuple(files),
        options={
            "part": "train (60,000, the default), test (10,000) or all.",
            "resolution": "Side in pixels to resize to, for instance 32; 28 as published.",
        },
        samples=counts["train"],
        shape=(1, SIDE, SIDE),
        factors=(Factor(factor, len(classes), "categorical", tuple(classes)),),
        **about,
    )
    return source


def _file_facts(*lines: str) -> dict[str, dict[str, Any]]:
    return {
        file: {"size": int(size), "sha256": sha256}
        for file, size, sha256 in (line.split() for line in lines)
    }


MNIST = build(
    "mnist",
    factor="digit",
    classes=[str(digit) for digit in range(10)],
    counts={"train": 60_000, "t10k": 10_000},
    file_facts=_file_facts(
        "train-images-idx3-ubyte.gz 9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",  # noqa: E501
        "train-labels-idx1-ubyte.gz 28881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",  # noqa: E501
        "t10k-images-idx3-ubyte.gz 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",  # noqa: E501
        "t10k-labels-idx1-ubyte.gz 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",  # noqa: E501
    ),
    addresses=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    title="MNIST handwritten digits",
    summary="Grey pictures of the digits 0 to 9, white on black, 28 x 28.",
    cite="LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document "
    "recognition, Proceedings of the IEEE 86, 1998.",
    licence="No licence text with the original; commonly described as CC BY-SA 3.0 "
    "(Yann LeCun, Corinna Cortes).",
    homepage="http://yann.lecun.com/exdb/mnist/",
)

FASHION = build(
    "fashion-mnist",
    factor="class",
    classes=[
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ],
    counts={"train": 60_000, "t10k": 10_000},
    file_facts=_file_facts(
        "train-images-idx3-ubyte.gz 26421880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",  # noqa: E501
        "train-labels-idx1-ubyte.gz 29515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",  # noqa: E501
        "t10k-images-idx3-ubyte.gz 4422102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",  # noqa: E501
        "t10k-labels-idx1-ubyte.gz 5148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",  # noqa: E501
    ),
    addresses=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    title="Fashion-MNIST",
    summary="Grey pictures of ten kinds of clothing, 28 x 28.",
    cite="Xiao, Rasul, Vollgraf, Fashion-MNIST: a novel image dataset for benchmarking machine "
    "learning algorithms, arXiv:1708.07747, 2017.",
    licence="MIT (Zalando SE, 2017).",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
)
