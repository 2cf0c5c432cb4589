"""What differs between the scales small and paper: the data sets, and words about networks."""

from zscope.experiments.studies.rows import Rows, data_name
from zscope.experiments.studies.study import Results

__all__ = ["MPI3D", "TITLES", "on_shapes", "setting", "title_of"]

TITLES = {
    "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "shapes3d": "3D Shapes",
    "mpi3d-toy": "MPI3D toy", "mpi3d-sim": "MPI3D sim", "mpi3d-real": "MPI3D real",
}  # fmt: skip
MPI3D = ("mpi3d-toy", "mpi3d-sim", "mpi3d-real")


def title_of(data: str) -> str:
    """The name of a data set as papers write it: "MNIST" of "mnist?resolution=32"."""
    return TITLES.get(data_name(data), data_name(data))


def on_shapes(results: Results, *groups: str, **fields: object) -> Rows:
    """The runs on 3D Shapes; at scale small those on rooms, which stand for it."""
    rows = results.rows(*groups, **fields)
    return rows.on("shapes3d") if results.scale == "paper" else rows


def setting(results: Results, small: str) -> str:
    """What a table says of networks and training: at scale small, these words."""
    return "Networks and training as published." if results.scale == "paper" else small
