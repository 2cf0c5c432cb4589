"""Facts about constructed models, and what a rule of the report makes of them."""

from worlds import gaussian_codes

import zscope as zs
from zscope.assays.run import measure
from zscope.data.dataset import from_arrays
from zscope.report.findings import Facts
from zscope.report.latents import latent_table
from zscope.report.rules import RULES

BY_NAME = {rule.name: rule for rule in RULES}


def facts(model, data, *names, factors=None, kinds=(), explained=None, seed=0, options=None):
    """What a rule may look at, of a constructed model on constructed data."""
    dataset = from_arrays(data, factors, factor_kinds=kinds)
    recording = zs.record(model, dataset, seed=seed)
    measurements = measure(recording, names, resamples=2, options=options)
    assert not measurements.missing
    assert not measurements.failed
    matrix = measurements.results.get("response-matrix")
    diagonal = None if matrix is None else matrix.relative.diagonal().tolist()
    return Facts(recording, measurements.results, latent_table(recording, diagonal), explained)


def said(rule, *args, **options):
    return BY_NAME[rule](facts(*args, **options))


def only(found):
    assert len(found) == 1, [str(each) for each in found]
    return found[0]


def normal(samples=600, latents=4, seed=0):
    return gaussian_codes(samples, latents, seed).float()
