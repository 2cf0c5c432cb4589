"""Worlds in which the truth of every printed interval is known, and nulls for every p-value.

A `Case` draws data for a seed, measures them with the runner and reads the intervals. Its truth
is a closed form, or the score of very many samples (`many`), which is computed once.
"""

import inspect
import math
import zlib
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from unittest import mock

import map_worlds
import numpy as np
import torch
from map_worlds import autoregressive
from scipy import integrate, stats
from worlds import World, expected_kernel, expected_mmd, identity, responding

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.assays.diffusion.spectrum import low_pass
from zscope.assays.disentanglement import score
from zscope.assays.run import measure
from zscope.autoencoder import Posterior, WithCausalBlock
from zscope.data.dataset import Dataset
from zscope.map_summary import cosine_basis
from zscope.recording import Recording

Interval = tuple[float, float, float]  # value, low, high


def by_measure(result) -> dict[str, Interval]:
    """The intervals of the scores of a result."""
    return {
        each.name or "score": (each.value, *each.interval)
        for each in result.measures()
        if not isinstance(each.interval, str)
    }


@contextmanager
def few_permutations():
    """One permutation for the chance level of a score, which leaves score and interval alone."""
    usual = score._shuffled_estimates
    with mock.patch.object(
        score, "_shuffled_estimates", lambda *most: usual(*most[:3], permutations=1)
    ):
        yield


@dataclass(frozen=True)
class Case:
    """An assay on a world. `truths` are closed forms; other measures have the score of `many`
    samples for their truth. `about` says what an interval is about: the "truth", or the mean
    score of samples of this "size", where the score depends on how many there are."""

    name: str
    assay: str
    world: str
    samples: int
    draw: Callable[[torch.Generator, int, int], Recording | list[Recording]]
    truths: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    resamples: int = 20
    repeats: int = 200
    many: int = 200_000
    scales: str = ""  # the option that says how many samples are used, if there is one
    about: str = "truth"
    read: Callable[[object], dict[str, Interval]] = by_measure
    flag: str = ""  # what the result says where its interval covers less than it seems
    quick: bool = False  # cheap enough to be measured again by every test run

    @property
    def uses_resamples(self) -> bool:
        return "resamples" in inspect.signature(CATALOGUE[self.assay].load()).parameters

    def result(self, seed: int, samples: int = 0):
        """What the runner measures of one draw of the world."""
        count = samples or self.samples
        source = torch.Generator().manual_seed(zlib.crc32(self.name.encode()) + seed)
        recording = self.draw(source, count, seed)
        options = dict(self.options) | ({self.scales: count} if self.scales else {})
        resamples = 0 if samples else self.resamples
        with few_permutations():
            return self._result(recording, options, resamples)

    def _result(self, recording, options, resamples):
        if isinstance(recording, list):  # an assay that compares recordings
            return CATALOGUE[self.assay].load()(recording, **options, resamples=resamples)
        outcome = measure(
            recording, [self.assay], options={self.assay: options} if options else None,
            resamples=resamples,
        )  # fmt: skip
        if outcome.failed or outcome.missing:
            raise AssertionError(f"{self.name}: {outcome.failed or outcome.missing}")
        return outcome.results[self.assay]

    def intervals(self, seed: int) -> dict[str, Interval]:
        return self.read(self.result(seed))

    def values(self, seed: int, samples: int) -> dict[str, float]:
        """The scores of very many samples."""
        return {each.name or "score": each.value for each in self.result(seed, samples).measures()}


@dataclass(frozen=True)
class Null:
    """A p-value in a world where its hypothesis is true."""

    name: str
    assay: str
    world: str
    samples: int
    p_value: Callable[[int], float]
    repeats: int = 200


def normal(source: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=source, dtype=torch.float64)


# Codes and factors


def scores(source, samples, seed, noise=0.6):
    """Two factors of 3 and 4 values; each in a latent of its own, and both in a third."""
    factors = torch.stack([torch.randint(n, (samples,), generator=source) for n in (3, 4)], 1)
    scaled = (factors - torch.tensor([1, 1.5])) / torch.tensor([0.816, 1.118])
    mix = torch.tensor([[1, 0, 0.5], [0, 1, 0.4]]).double()
    codes = scaled.double() @ mix + noise * normal(source, samples, 3)
    return Recording.from_arrays(codes, factors, kinds="categorical", seed=seed)


def gaussian(mix):
    mix = torch.tensor(mix, dtype=torch.float64)

    def draw(source, samples, seed):
        return Recording.from_arrays(normal(source, samples, len(mix)) @ mix, seed=seed)

    return draw, (mix.T @ mix).numpy()


correlated, COVARIANCE = gaussian([[1.0, 0.6, 0.0], [0, 0.8, 0.3], [0, 0, 1]])
unequal, _ = gaussian(np.diag([2, 2**0.5, 1]).tolist())
wide, _ = gaussian(np.eye(10).tolist())


def torus(source, samples, seed):
    """Uniform on a flat torus: two dimensions without an edge, in four columns."""
    angle = 2 * math.pi * torch.rand(samples, 2, generator=source, dtype=torch.float64)
    return Recording.from_arrays(torch.cat([angle.sin(), angle.cos()], 1), seed=seed)


# Posteriors


def posteriors(source, samples, seed):
    """Two active latents of posterior variance 0.1 e^(0.3 n), and one passive latent."""
    mean = normal(source, samples, 3) * torch.tensor([1, 1, 0.02]).double()
    variance = (
        torch.tensor([0.1, 0.1, 0.98]).double()
        * (torch.tensor([0.3, 0.3, 0.0]).double() * normal(source, samples, 3)).exp()
    )
    return Recording.from_arrays(mean, variances=variance, seed=seed)


ACTIVE = 0.1 * math.exp(0.3**2 / 2)  # mean of a log-normal variance
RATE = (ACTIVE - math.log(0.1)) + 0.5 * (0.98 + 0.02**2 - 1 - math.log(0.98))
POLARISED = -math.log(0.1)  # 1/2 (1 - log v - 1), twice


def two_active(source, samples, seed):
    """Means that fill two latents, and two passive latents whose means are constant."""
    mean = torch.cat([normal(source, samples, 2), torch.zeros(samples, 2)], 1)
    std = torch.tensor([1e-3, 1e-3, 1, 1]).double().expand(samples, 4)
    return Recording.from_arrays(mean, variances=std.square(), seed=seed)


def noisy_copy(source, samples, seed):
    """x ~ N(0, I) of two features is encoded as itself, with a spread of 1/2."""
    x = normal(source, samples, 2).float()
    return record(identity(2, prior="normal", std=0.5), x, seed)


def record(model, x, seed, factors=None):
    data = Dataset("world", x.numpy(), None if factors is None else factors.numpy())
    return zs.record(model, data, samples=len(x), seed=seed)


# Decoders


def curved(z):
    first, second = z[:, 0], z[:, 1]
    columns = [first + 0.5 * second**2, second + 0.3 * first * second, first * second]
    return torch.stack(columns, 1)


def curved_posteriors(source, samples, seed):
    """A curved decoder of two latents; posteriors of random spread; x with noise of 0.3."""
    mean = normal(source, samples, 2).float()
    std = 0.2 * (0.4 * normal(source, samples, 2).float()).exp()
    x = curved(mean) + 0.3 * normal(source, samples, 3).float()
    model = World(curved, lambda x: x[:, :2], 2, prior="normal")
    return Recording(model, Posterior(mean, std), Dataset("world", x.numpy()), None, seed)


def stretched(source, samples, seed):
    """x_j = s_j sinh z_j; the encoder's variance is the decoder's prediction e^(0.5 n)."""
    mean, scale = normal(source, samples, 2).float(), torch.tensor([1.0, 2.0])
    slope = mean.cosh() * scale
    variance = 1 / (1 + slope.square() / 0.5) * (0.5 * normal(source, samples, 2).float()).exp()
    model = World(lambda z: z.sinh() * scale.to(z), lambda x: x, 2, prior="normal")
    return Recording(model, Posterior(mean, variance.sqrt()), None, None, seed)


# Responses

RESPONSE = torch.tensor([[1.0, 0.3, 0.0], [0.0, 0.7, 0.1], [0.2, 0.0, 0.5]]).double()


def linear_response(prior):
    model = responding(lambda z: z @ RESPONSE.T.to(z), 3, prior=prior)

    def draw(source, samples, seed):
        codes = normal(source, max(samples, 500), 3).float()
        return Recording(model, Posterior(codes), None, None, seed)

    return draw


@cache
def consistency() -> dict[str, float]:
    """R(z) = A z for z ~ N(0, I). An intervention on m changes z_m by v - z_m, so that
    1 - INV_mi = |A_im| s_m / s_i with s_i the length of row i; equivariance differs in i = m,
    where A_mm v + (rest of row m) should be v: the mean of |N(t, r²)|, t = (A_mm - 1) v."""
    a, s = RESPONSE.numpy(), RESPONSE.norm(dim=1).numpy()
    error = np.abs(a).T * s[:, None] / s
    inside = error.copy()
    for m in range(3):
        rest = math.sqrt(s[m] ** 2 - a[m, m] ** 2)

        def relative(v, m=m, rest=rest):
            ratio = folded((a[m, m] - 1) * v, rest) / folded(v, 1.0)
            return ratio * stats.norm.pdf(v)

        inside[m, m] = integrate.quad(relative, -9, 9)[0]
    drift = 1 - math.sqrt(2 / math.pi) * np.linalg.norm(a - np.eye(3), axis=1) / s
    return {
        "invariance": 1 - (error.sum() - np.trace(error)) / 6,
        "equivariance": 1 - inside.mean(),
        "self-consistency (prior)": drift.mean(),
        "self-consistency (posterior)": drift.mean(),
        "self-consistency (hybrid)": drift.mean(),
    }


def folded(mean: float, deviation: float) -> float:
    """E |X| of a Gaussian X."""
    z = mean / deviation
    return deviation * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + mean * math.erf(
        z / math.sqrt(2)
    )


def matrix_entries(result) -> dict[str, Interval]:
    """One entry of each kind; (j, k) is the change of latent k when latent j is replaced."""
    entries = {}
    for name, (j, k) in {"diagonal": (0, 0), "off the diagonal": (1, 0)}.items():
        for word, values, ends in (
            ("entry", result.matrix, result.interval),
            ("relative entry", result.relative, result.relative_interval),
        ):
            low, high = ends[:, j, k].tolist()
            entries[f"{word} {name}"] = float(values[j, k]), low, high
    low = float(result.relative_low[1, 0])
    entries["lower end of a relative entry"] = float(result.relative[1, 0]), low, math.inf
    return entries


GRID = torch.tensor([[1.0, 0.3], [0.0, 0.8]]).double()


def grid_factors(source, samples, seed):
    """Two factors of 4 values; latent j is their sum with weights of column j, and noise."""
    factors = torch.randint(4, (samples, 2), generator=source)
    scaled = (factors - 1.5) / 1.25**0.5
    x = scaled.double() @ GRID + 0.3 * normal(source, samples, 2)
    return record(identity(2, prior="normal"), x.float(), seed, factors)


def conditioned_scores() -> dict[str, float]:
    matrix = (2 * (GRID.square() + 0.09)).sqrt().numpy()
    total = matrix.sum()
    return {
        "disentanglement": (matrix.max(0).sum() / total - 0.5) / 0.5,
        "completeness": (matrix.max(1).sum() / total - 0.5) / 0.5,
        "entry": matrix[0, 0],
        "small entry": matrix[1, 0],
    }


def conditioned_entries(result) -> dict[str, Interval]:
    both = result.interval
    return by_measure(result) | {
        name: (float(result.matrix[m, 0]), *both[:, m, 0].tolist())
        for name, m in (("entry", 0), ("small entry", 1))
    }


def shrunk(latents, ratio=0.8, noise=0.3):
    """The response to z is N(ratio z, noise²)."""
    return responding(lambda z: ratio * z, latents, prior="normal", std=noise)


def of_prior(model):
    def draw(source, samples, seed):
        return record(model, normal(source, 64, model.latents).float(), seed)

    return draw


def two_correlated(source, samples, seed):
    draw, _ = gaussian([[1, 0.6], [0, 0.8]])
    return draw(source, samples, seed)


def dependence() -> float:
    """MMD² between a Gaussian with correlation 0.6 and its hybrids, by quadrature."""

    def kernel(first, second):
        def both(u):
            return ((1 + 2 * u * first) * (1 + 2 * u * second)) ** -0.5

        total = 0.0
        for s in (0.1, 0.2, 0.5, 1, 2, 5, 10):
            width = 4 * s

            def integrand(t, width=width):
                u = t / (1 - t)
                return width * math.exp(-u * width) * both(u) / (1 - t) ** 2

            total += integrate.quad(integrand, 0, 1, limit=200)[0]
        return total

    # Differences of two codes have twice the variances 1.6 and 0.4 along the diagonals.
    return kernel(3.2, 0.8) + kernel(2, 2) - 2 * kernel(2.6, 1.4)


def pulled(source, samples, seed):
    """R(z) = z + z²/10: the displacement grows with |z|, and data are narrower than the prior."""
    model = responding(lambda z: z + 0.1 * z.square(), 1, prior="normal")
    codes = 0.6 * normal(source, 2000, 1).float()
    return Recording(model, Posterior(codes), None, None, seed)


class Block(WithCausalBlock):
    """Z_0 = N_0, Z_1 = N_1 + 0.4 Z_0: an open edge that is worth 0.16 of squared error."""

    latents, prior = 2, "normal"

    def __init__(self):
        super().__init__()
        self.block = torch.nn.Identity()

    def edge_probabilities(self):
        return torch.tensor([[0, 0.9], [0, 0]])

    def causes(self, noise, *, fixed=None, edges=None):
        is_open = self.edge_probabilities()[0, 1] > 0.5 if edges is None else edges[0, 1]
        return torch.stack([noise[:, 0], noise[:, 1] + 0.4 * is_open * noise[:, 0]], 1)

    def decode_causes(self, causes):
        return causes

    def decode(self, z):
        return self.causes(z)

    def encode(self, x, auxiliary=None):
        return Posterior(torch.stack([x[:, 0], x[:, 1] - 0.4 * x[:, 0]], 1))


def edge(source, samples, seed):
    model, codes = Block(), normal(source, samples, 2).float()
    x = model.decode(codes) + 0.3 * normal(source, samples, 2).float()
    return Recording(model, Posterior(codes), Dataset("world", x.numpy()), None, seed)


WEIGHTS = torch.tensor([[1.0, 0.5], [0.0, 1.0]])


def features(decoder):
    def draw(source, samples, seed):
        codes = normal(source, 400, 2).float()
        x = decoder(codes) + 0.3 * normal(source, 400, 2).float()
        model = World(decoder, lambda x: x, 2)
        return Recording(model, Posterior(codes), Dataset("world", x.numpy()), None, seed)

    return draw


def effect(result) -> dict[str, Interval]:
    return {
        "effect": tuple(float(part[0, 1]) for part in (result.effects, result.low, result.high))
    }


def size(result) -> dict[str, Interval]:
    low, high = result.size_interval
    return {"size": (2 * float(result.sizes[0, 1]), 2 * float(low[0, 1]), 2 * float(high[0, 1]))}


def product(z):
    return torch.stack([z[:, 0], z[:, 0] * z[:, 1]], 1)


def bend(z):
    return torch.stack([z[:, 0], 0.5 * z[:, 0] * (1 + 0.5 * z[:, 1])], 1)


def probed(source, samples, seed):
    """A factor of two values in one latent with noise of 1; a passive latent."""
    factor = torch.randint(2, (samples, 1), generator=source)
    codes = 2 * factor.double() - 1 + normal(source, samples, 1)
    mean = torch.cat([codes, torch.zeros(samples, 1)], 1)
    variance = torch.tensor([0.05, 1.0]).double().expand(samples, 2)
    return Recording.from_arrays(mean, factor, variances=variance, kinds="categorical", seed=seed)


def three_models(source, samples, seed):
    """Three models see the same three causes: two alike, one with two of them mixed."""
    causes = normal(source, samples, 3)
    turn = torch.tensor([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]]).double()
    codes = [causes[:, [1, 0, 2]], -causes, causes @ turn]
    return [
        Recording.from_arrays(each + 0.5 * normal(source, samples, 3), seed=seed) for each in codes
    ]


# Maps of latents


def lines(source, samples, seed):
    """Two channels of 64 places with a correlation of 0.8 from one to the next."""
    maps = torch.stack([autoregressive(samples, 64, 0.8, source) for _ in range(2)], 1)
    maps = MAP_MEANS[:, None] + MAP_DEVIATIONS[:, None] * maps
    return Recording.from_arrays(maps, layout=zs.Layout(2, (64,)), seed=seed)


MAP_MEANS, MAP_DEVIATIONS = torch.tensor([1.0, -2.0]).double(), torch.tensor([1.0, 3.0]).double()
MAP_SCALE = 1 / math.sqrt(float(MAP_DEVIATIONS.square().mean() + MAP_MEANS.var(correction=0)))


def dependent_lines(source, samples, seed):
    """The same, with a correlation of 0.6 between the two channels at each place."""
    first, second = (autoregressive(samples, 64, 0.8, source) for _ in range(2))
    maps = torch.stack([first, 0.6 * first + 0.8 * second], 1)
    return Recording.from_arrays(maps, layout=zs.Layout(2, (64,)), seed=seed)


def beyond_chance(result) -> dict[str, Interval]:
    """What dependent places share beyond chance; their score depends on the number of pictures."""
    return {name: ends for name, ends in by_measure(result).items() if name == "beyond chance"}


def channel_moments(result) -> dict[str, Interval]:
    rows = {"mean of a channel": "mean", "std of a channel": "std"}
    return by_measure(result) | {
        name: (float(getattr(result, word)[1]), *getattr(result, f"{word}_interval")[1].tolist())
        for name, word in rows.items()
    }


def high_of_lines() -> float:
    """The share of the upper half of the cosine terms in blocks of 8 of such lines."""
    place = np.arange(8)
    terms = cosine_basis(8).numpy()
    energy = np.diag(terms @ 0.8 ** np.abs(np.subtract.outer(place, place)) @ terms.T)
    return energy[4:].sum() / energy[1:].sum()


SIDE = 8


def smooth(source, samples, seed, model=map_worlds.space_to_depth):
    """Periodic Gaussian pictures whose power falls as 1 / frequency²."""
    number = int(torch.randint(2**31, (1,), generator=source))
    return record(model(), map_worlds.power_law(samples, SIDE, 2.0, seed=number), seed)


def picture_covariance() -> np.ndarray:
    frequency = np.fft.fftfreq(SIDE) * SIDE
    radius = np.hypot(frequency[:, None], frequency)
    radius[0, 0] = 1
    by_distance = np.fft.ifft2(1 / radius**2).real
    row, column = np.divmod(np.arange(SIDE**2), SIDE)
    apart = [np.subtract.outer(each, each) % SIDE for each in (row, column)]
    covariance: np.ndarray = by_distance[apart[0], apart[1]]
    return covariance / covariance[0, 0]


def power_of(function) -> float:
    """E |function(x)|² of such pictures, for a linear function."""
    basis = torch.eye(SIDE**2, dtype=torch.float64).reshape(-1, 1, SIDE, SIDE)
    columns = function(basis).flatten(1).numpy()
    return float(np.einsum("ik,ij,jk->", columns, picture_covariance(), columns))


def folded_equivariance() -> float:
    """1 - mean error of space-to-depth, whose encoder is linear: x and the next are independent."""

    def encode(x):
        return torch.nn.functional.pixel_unshuffle(x, 2)

    def halve(x):
        return torch.nn.functional.avg_pool2d(x, 2)

    ways = [lambda x: x.flip(2), lambda x: x.flip(3)]
    ways += [partial(torch.rot90, k=k, dims=(2, 3)) for k in (1, 2, 3)]
    errors = [
        power_of(lambda x, t=t: encode(t(x)) - t(encode(x)))
        / (power_of(lambda x, t=t: encode(t(x))) + power_of(lambda x, t=t: t(encode(x))))
        for t in [*ways, halve]
    ]
    return 1 - sum(errors) / (len(errors) + 2)  # shifts by whole places are followed exactly


def folded_spectrum() -> dict[str, float]:
    """Excess, high frequencies and correspondence of space-to-depth: one block of 4 x 4 places."""
    terms = cosine_basis(4)
    band = torch.arange(4)[:, None] + torch.arange(4)

    def high(function) -> float:
        def energy(chosen):
            return power_of(
                lambda x: chosen * torch.einsum("uh,nchw,vw->ncuv", terms, function(x), terms)
            )

        return energy(band >= 4) / energy(band >= 1)

    def encode(x):
        return torch.nn.functional.pixel_unshuffle(x, 2)

    def correspondence(count):
        number = count, count
        error = power_of(lambda x: low_pass(encode(x), number) - encode(low_pass(x, number)))
        return error / power_of(lambda x: low_pass(x, number))

    folded = high(encode)
    return {
        "excess": folded / high(lambda x: torch.nn.functional.avg_pool2d(x, 2)),
        "high frequencies": folded,
        "correspondence at 1/2": correspondence(2),
        "correspondence at 1/4": correspondence(1),
    }


def uneven(source, samples, seed, model=map_worlds.identity, sizes=(1.0,)):
    """White maps, each picture with an amplitude of its own; channels of these sizes."""
    amplitude = 0.5 + torch.rand(samples, 1, 1, 1, generator=source)
    maps = amplitude * torch.randn(samples, len(sizes), 6, 6, generator=source)
    return record(model(), maps * torch.tensor(sizes)[:, None, None], seed)


def leaking(source, samples, seed):
    """Copied, but the place to the left adds to the first channel as much as the second says."""

    def decode(z):
        first, second = z[:, :1], z[:, 1:]
        return torch.cat([first + second * first.roll(1, 3), second], 1)

    first = torch.randn(samples, 1, 6, 6, generator=source)
    second = torch.rand(samples, 1, 6, 6, generator=source)  # E z² = 1/3
    model = zs.wrap(lambda x: x.clone(), decode, prior=None)
    return record(model, torch.cat([first, second], 1), seed)


def faded(source, samples, seed):
    """A fixed picture of random brightness, of which nine tenths are decoded."""
    row = torch.arange(16) / 15
    pattern = (row[:, None] * row + row.flip(0)) / 2
    brightness = 0.5 + 0.5 * torch.rand(samples, 1, 1, 1, generator=source)
    model = zs.wrap(lambda x: x.clone(), lambda z: 0.9 * z, prior=None)
    return record(model, brightness * pattern, seed)


def fading() -> float:
    """Mean PSNR: the error is a tenth of the picture, whose brightness is even in 0.5 to 1."""
    row = np.arange(16) / 15
    pattern = (row[:, None] * row + row[::-1]) / 2
    mean_log = (0.5 * math.log(2) - 0.5) / 0.5  # E ln b
    return -10 * math.log10(0.01 * float((pattern**2).mean())) - 20 * mean_log / math.log(10)


SCORES = "two factors, three latents, Gaussian noise"
SMALLER = "not that of many more"  # in the flag of scores that depend on the number of samples
COSTLY = {"resamples": 5}
RESPONSES = "linear response of three latents to N(0, I)"
CURVED = "curved decoder of two latents"
DRIFT = consistency()
EIGENVALUES = np.array([4, 2, 1]) / 7
CORRELATIONS = COVARIANCE / np.sqrt(np.outer(COVARIANCE.diagonal(), COVARIANCE.diagonal()))

LINES = "two channels of 64 places, correlated by 0.8 from one to the next"
FOLDED = "pictures of power 1 / frequency², folded into four channels"

CASES = [
    *(
        Case(name, name, SCORES, 400, scores, resamples=10, quick=name in ("mig", "mcc"))
        for name in ("mig", "mig-sup", "jemmig", "dcimig", "modularity", "mcc", "sap")
    ),
    Case("irs", "irs", SCORES, 400, scores, resamples=10, about="size", flag=SMALLER, quick=True),
    Case("predictability-gap", "predictability-gap", SCORES, 400, scores, resamples=10,
         many=50_000),
    Case("explicitness", "explicitness", SCORES, 200, scores, many=20_000, **COSTLY),
    Case("dci", "dci", SCORES, 200, scores, many=20_000, about="size", flag=SMALLER, **COSTLY),
    *(
        Case(name, name, "the same with more noise", 200, partial(scores, noise=1.2),
             many=20_000, **COSTLY)
        for name in ("factor-vae-score", "beta-vae-score")
    ),
    Case("udr", "udr", "three models of the same three causes", 400, three_models,
         resamples=10),
    Case("total-correlation", "total-correlation", "correlated Gaussian of three latents", 400,
         correlated, {"score": -0.5 * math.log(np.linalg.det(CORRELATIONS))}, quick=True),
    Case("mutual-information", "mutual-information", "correlated Gaussian of three latents", 400,
         correlated, about="size", many=1_000_000, flag=SMALLER),
    Case("effective-rank", "effective-rank", "Gaussian with variances 4, 2 and 1", 400, unequal,
         {"score": math.exp(-(EIGENVALUES * np.log(EIGENVALUES)).sum())}, quick=True),
    Case("intrinsic-dimension", "intrinsic-dimension", "flat torus, two dimensions", 1000, torus,
         {"score": 2.0}, about="size", flag=SMALLER),
    Case("intrinsic-dimension twonn", "intrinsic-dimension", "flat torus, two dimensions", 1000,
         torus, {"score": 2.0}, options={"method": "twonn"}),
    Case("intrinsic-dimension 10", "intrinsic-dimension", "Gaussian in ten dimensions", 1000, wide,
         {"score": 10.0}, about="size", flag=SMALLER),
    Case("dimension-gap", "dimension-gap", "two active and two passive latents", 600, two_active,
         {"score": 2.0}),
    Case("trace-gap", "trace-gap", "posteriors of random spread", 100, posteriors,
         {"score": 2 * ACTIVE + 0.98}, quick=True),
    Case("latent-divergence", "latent-divergence", "posteriors of random spread", 100, posteriors,
         {"score": RATE}, quick=True),
    Case("polarisation", "polarisation", "posteriors of random spread", 100, posteriors,
         {"score": (RATE - POLARISED) / RATE}, quick=True),
    Case("rate-distortion", "rate-distortion", "N(0, I) copied with noise", 200, noisy_copy,
         {"distortion": 0.5, "rate": 0.25 - math.log(0.25),
          "information": math.log(5)}, options={"likelihood": "gaussian"}),
    Case("predicted-variance", "predicted-variance", "decoder whose slope varies", 100, stretched,
         scales="samples", many=20_000),
    Case("distance-to-orthogonality", "distance-to-orthogonality", CURVED, 256, curved_posteriors,
         scales="samples", many=20_000),
    Case("alignment-gap", "alignment-gap", CURVED, 256, curved_posteriors, scales="samples",
         many=20_000),
    Case("optimal-noise", "optimal-noise", CURVED, 256, curved_posteriors, scales="samples",
         many=20_000),
    Case("loss-decomposition", "loss-decomposition", CURVED, 100, curved_posteriors,
         scales="samples", many=20_000),
    Case("structure-score", "structure-score", "responses N(0.8 z, 0.09) of two latents", 256,
         of_prior(shrunk(2)), {"score": expected_mmd(2, 0.73)}, {"permutations": 0},
         scales="samples", quick=True),
    Case("structure-score null", "structure-score", "responses distributed like the prior", 256,
         of_prior(shrunk(2, 0.8, 0.6)), {"score": 0.0}, {"permutations": 0}, scales="samples"),
    Case("causal-structure-score", "causal-structure-score",
         "responses N(0.8 z, 0.09); two of three latents compared", 256, of_prior(shrunk(3)),
         {"score": expected_kernel(0, 2, 2, 3) + expected_kernel(0, 2 * 0.73, 2, 3)
          - 2 * expected_kernel(0, 1.73, 2, 3)},
         {"permutations": 0, "causal": (0, 1)}, scales="samples"),
    Case("independence", "independence", "two latents with correlation 0.6", 512, two_correlated,
         {"score": dependence()}, {"permutations": 0}),
    Case("interventional-consistency", "interventional-consistency", RESPONSES, 128,
         linear_response("normal"), DRIFT, {"interventions": 8}, scales="samples", many=20_000,
         flag="over other codes it covers about 90 %"),
    Case("holes", "holes", "data narrower than the prior", 500, pulled,
         {"score": 2 * stats.norm.sf(stats.norm.ppf(0.995) * 0.6)}, scales="samples"),
    Case("response-matrix", "response-matrix", RESPONSES, 128, linear_response(None),
         {f"{word} {kind}": value * (1 if word == "relative entry" else math.sqrt(2))
          for word in ("entry", "relative entry")
          for kind, value in (("diagonal", 1.0), ("off the diagonal", 0.3))}
         | {"lower end of a relative entry": 0.3},
         scales="samples", read=matrix_entries, quick=True),
    Case("conditioned-response-matrix", "conditioned-response-matrix",
         "two factors of 4 values in two latents", 400, grid_factors, conditioned_scores(),
         {"causal": (0, 1)}, read=conditioned_entries),
    Case("masks", "masks", "a causal block with one edge", 512, edge,
         {"rise without edges": 0.16 / 0.18}, scales="samples"),
    Case("feature-effects", "feature-effects", "linear decoder of two features", 64,
         features(lambda z: z @ WEIGHTS.to(z)), {"effect": 2 * 0.5 / math.sqrt(1.34)},
         scales="samples", read=effect),
    Case("feature-effects bent", "feature-effects", "latent whose effect another changes", 64,
         features(bend), {"effect": 1.0 / math.sqrt(0.25 * 1.25 + 0.09)}, scales="samples",
         read=effect),
    Case("feature-effects size", "feature-effects", "feature that moves both ways", 64,
         features(product), {"size": 2 / math.sqrt(1.09)}, scales="samples", read=size),
    Case("type-probe", "type-probe", "a factor of two values in one latent", 300, probed,
         options={"penalties": 2}, scales="samples", many=60_000),
    Case("latent-statistics", "latent-statistics", LINES, 40, lines,
         {"scaling factor": MAP_SCALE, "shift factor": -0.5, "mean of a channel": -2.0,
          "std of a channel": 3.0}, read=channel_moments, quick=True),
    Case("total-correlation of maps", "total-correlation", f"{LINES}; channels by 0.6", 60,
         dependent_lines, {"beyond chance": -0.5 * math.log(1 - 0.36)}, read=beyond_chance,
         quick=True),
    Case("latent-spectrum", "latent-spectrum", LINES, 40, lines,
         {"high frequencies along time": high_of_lines()}, quick=True),
    Case("latent-spectrum folded", "latent-spectrum", FOLDED, 96, smooth, folded_spectrum()),
    Case("equivariance", "equivariance", FOLDED, 96, smooth, {"score": folded_equivariance()}),
    Case("noise-robustness", "noise-robustness", "white maps of random amplitude, copied", 400,
         uneven, {"gain": 1.0}),
    Case("locality", "locality", "a channel that leaks as much as another says", 96,
         # Of a change of the first channel 1 / (1 + E z²) stays, z the second; all of others.
         leaking, {"score": (3 / 4 + 1) / 2}, repeats=1000),
    Case("unit-importance", "unit-importance", "two channels of variances 4 to 1, copied", 96,
         partial(uneven, sizes=(2.0, 1.0)), {"importance of channel 0": 0.8}, repeats=1000),
    Case("reconstruction-quality", "reconstruction-quality", "a picture of random brightness", 60,
         faded, {"PSNR, dB": fading()}, scales="samples", many=4_000),
]  # fmt: skip


def null_of(case: Case, permutations: int = 99) -> Callable[[int], float]:
    options = {**case.options, "permutations": permutations}
    return lambda seed: replace(case, options=options).result(seed).p_value


def two_clouds(seed: int) -> float:
    source = torch.Generator().manual_seed(seed)
    x, y = normal(source, 60, 2), normal(source, 60, 2)
    return zs.assays.mmd(x, y, permutations=99, generator=source).p_value


LIKE_PRIOR = "responses distributed like the prior"
NULLS = [
    Null("structure-score p", "structure-score", LIKE_PRIOR, 60, null_of(
        Case("structure-score p", "structure-score", "", 60, of_prior(shrunk(2, 0.8, 0.6)),
             scales="samples"))),
    Null("causal-structure-score p", "causal-structure-score", LIKE_PRIOR, 60, null_of(
        Case("causal-structure-score p", "causal-structure-score", "", 60,
             of_prior(shrunk(3, 0.8, 0.6)), options={"causal": (0, 1)}, scales="samples"))),
    Null("independence p", "independence", "independent Gaussian latents", 120, null_of(
        Case("independence p", "independence", "", 120, gaussian(np.eye(2).tolist())[0]))),
    Null("mmd p", "mmd", "two clouds of one Gaussian", 60, two_clouds),
]  # fmt: skip
