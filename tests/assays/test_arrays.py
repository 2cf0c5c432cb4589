"""NumPy arrays are accepted wherever tensors are, with the same results."""

import inspect
from functools import partial

import map_worlds
import numpy as np
import pytest
import torch
from worlds import grid, identity

import zscope as zs
from zscope.assays import _FUNCTIONS, CATALOGUE, arguments, parts
from zscope.factors import Factors
from zscope.results import plain

a = zs.assays
FACTORS = np.tile(grid(4, 5), (6, 1))
CODES = torch.from_numpy(FACTORS).float() / 2 - 1
CODES += 0.1 * torch.randn(CODES.shape, generator=torch.Generator().manual_seed(0))
MODEL = identity(2, std=0.1, prior="normal")
DATA = zs.data.from_arrays(CODES, FACTORS, factor_kinds=("ordinal", "ordinal"))
RECORDING = zs.record(MODEL, DATA)
POSTERIOR = RECORDING.posterior
# For assays that need a part which this model does not have.
RECORDINGS = {
    "causal block": zs.record(zs.models.build("xvae", shape=(2,), latents=2), DATA),
    "layout": zs.record(map_worlds.identity(), map_worlds.power_law(20, 12, 1.0)),
}
SMALL = {"samples": 40, "permutations": 20, "interventions": 4, "grid": 4, "frames": 3, "draws": 4}


def as_tensors(value):
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def as_arrays(value):
    """Tensors as arrays, also in a posterior, a list or a dict."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, zs.Posterior):
        return zs.Posterior(as_arrays(value.mean), as_arrays(value.std), layout=value.layout)
    if isinstance(value, list):
        return [as_arrays(each) for each in value]
    if isinstance(value, dict):
        return {name: as_arrays(each) for name, each in value.items()}
    return value


def inputs(entry):
    """What an assay takes of the recording, as bare arrays."""
    function = inspect.unwrap(entry.load())
    signature = inspect.signature(function)
    values = {}
    recording = next((RECORDINGS[need] for need in entry.needs if need in RECORDINGS), RECORDING)
    for name, part in arguments._places(signature, entry).items():
        value = parts.PARTS[part](recording)
        if part == "maps":  # with the model, pictures are needed, too
            value = recording.posterior if entry.takes == ("maps",) else recording
        elif isinstance(value, zs.Recording):
            value = POSTERIOR if name == "posterior" else CODES
        values[name] = value.values if isinstance(value, Factors) else value
    if "data" in values:
        values |= {"data": CODES, "factors": FACTORS}
    values = {name: as_tensors(value) for name, value in values.items()}
    return values | {name: SMALL[name] for name in signature.parameters if name in SMALL}


COMPARED = {
    "udr": lambda: {"codes": [CODES, CODES.flip(1), CODES + 1], "similarity": "spearman"},
    "similarity-heatmap": lambda: {"first": {"mean": CODES}, "second": {"mean": CODES + 1}},
}
JACOBIANS = torch.eye(2).repeat(3, 1, 1)
SQUARE = torch.cartesian_prod(torch.arange(5.0), torch.arange(4.0)) / 4  # a grid of two factors
HELPERS = {
    "activations": (MODEL, CODES),
    "carried_information": (POSTERIOR,),
    "column_product": (CODES[:5],),
    "correlation_tracking": ([CODES, CODES.flip(1)],),
    "dataset_alignment": (SQUARE @ torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), SQUARE),
    "decoder_jacobian": (MODEL, CODES[:5]),
    "frechet_distance": (CODES, CODES[:60]),
    "gaussian_kl": (POSTERIOR.mean, POSTERIOR.variance.log()),
    "hole_score": (MODEL, CODES[:5], CODES),
    "information_gap": (CODES, CODES + 1, CODES),
    "mmd": (CODES, CODES.flip(0) + 0.1),
    "nearest_neighbours": (CODES, 3),
    "nearest_signed_permutation": (JACOBIANS,),
    "pair_traversal": (MODEL, CODES, (0, 1)),
    "precision_recall": (CODES, CODES[:60] + 0.1),
    "rate_distortion_curve": (torch.arange(1.0, 6), CODES[:5, 0].abs(), CODES[:5, 1]),
    "renyi_entropy": (CODES,),
    "renyi_information": (CODES, CODES.flip(1)),
    "respond": (MODEL, CODES),
    "respond_posterior": (MODEL, CODES),
    "rotation_excess": (CODES[:5],),
    "variable_types_by_kl": (POSTERIOR.kl(),),
}
WITHOUT_ARRAYS = {
    *("StreamingCKA", "VarianceMoments", "settled_fraction"),
    *("fondue", "binary_fondue", "fondue_beta", "fondue_types", "stable_fondue"),
    *("repeat_fondue", "replay_fondue", "area_between"),
}


def numbers(result):
    """What a function returns, as plain numbers."""
    if isinstance(result, zs.Posterior):
        result = [result.mean, result.std]
    return plain(result if not hasattr(result, "__dict__") else vars(result))


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_assay_of_arrays_is_the_assay_of_tensors(name):
    entry = CATALOGUE[name]
    if entry.compares:
        values = COMPARED.get(name, lambda: {"x": CODES, "y": CODES.flip(0)})()
    else:
        values = inputs(entry)
    arrays = {name: as_arrays(value) for name, value in values.items()}
    assert not any(isinstance(value, torch.Tensor) for value in arrays.values())
    assert entry.load()(**arrays).to_dict() == entry.load()(**values).to_dict()


NUMBERS = {"codes", "factors", "variances", "usage", "read_observations"}
OF_NUMBERS = [
    name
    for name, entry in CATALOGUE.items()
    if {word.rpartition("=")[2] for word in entry.takes} <= NUMBERS and not entry.compares
]


@pytest.mark.parametrize("name", [*OF_NUMBERS, "variable-types"])
def test_lists_of_numbers_are_arrays_too(name):
    values = inputs(CATALOGUE[name])
    lists = {n: v.tolist() if isinstance(v, torch.Tensor) else v for n, v in values.items()}
    function = CATALOGUE[name].load()
    assert function(**lists).to_dict() == function(**values).to_dict()


def test_every_public_helper_is_listed():
    assert set(HELPERS) | WITHOUT_ARRAYS == set(_FUNCTIONS)


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_takes_arrays_too(name):
    function, values = getattr(a, name), HELPERS[name]
    if name == "rotation_excess":
        function = partial(function, beta=1.0)
    arrays = [as_arrays(value) for value in values]
    assert numbers(function(*arrays)) == numbers(function(*values))


def test_read_only_arrays_cause_no_warning():
    codes = CODES.numpy().copy()
    codes.flags.writeable = False
    assert torch.equal(a.respond(MODEL, codes), a.respond(MODEL, CODES))
    assert len(zs.sampling.hybrid(codes, 5)) == 5
