"""Marginal likelihood of a decoder: log p(x), and the best ELBO of a diagonal posterior.

    p(z) = N(0, I),      p(x | z) = N(decode(z), I / γ²)

    log p(x) = log E_p(z)[ p(x | z) ]
    ELBO*(x) = max over μ, σ of  E_q[ log p(x | z) ] - KL( q || p(z) ),     q = N(μ, diag σ²)

For a linear decoder both are known exactly. For others log p(x) is estimated by importance
sampling from the Laplace posterior N(z*, (I + γ² J^T J)^-1), z* being the most probable code, with
the effective sample size (sum w)² / sum w² of each observation. ELBO* is found by Gauss-Newton
steps with damping (Levenberg-Marquardt) on a few noises, and evaluated on others, or it would
be too high. The noises come in pairs ±ε and have the covariance I exactly, so that both are
exact for a linear decoder too, whatever the number of noises.

The covariance of Laplace's method is that of Gauss and Newton: it leaves out the curvature of
the decoder times the error, which vanishes for observations that the decoder can make.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.alignment.column_product import rotation_excess
from zscope.assays.jacobian import PerSample, Table, Walk, decode
from zscope.autoencoder import Autoencoder
from zscope.types import Codes, Matrix

__all__ = ["Likelihoods", "Local", "linear_likelihoods", "linear_weights", "sampled_likelihoods"]

PROBES = 8  # codes around each of as many points, which tell whether a decoder is linear
Draws = Float[Tensor, "samples draws latents"]
Values = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Of parameters and the rows they belong to: loss, gradient and Gauss-Newton Hessian."""
ENOUGH = 1e-5  # nats: a search ends when it expects less
DECODED_BYTES = 16 * 2**20
"""Of decoded codes, derivatives or Gram matrices in double precision at once."""


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """log p and ELBO* of each observation, in nats, at one precision γ²."""

    log_likelihood: PerSample
    elbo: PerSample
    effective: PerSample | None  # effective sample sizes; None: exact
    unsettled: int  # observations for which the search for ELBO* did not end


class Local:
    """A decoder as a function of some latents, each of the others fixed at its codes' value.

    `latents` are the same for all codes, or a table with those of each.
    """

    def __init__(
        self,
        autoencoder: Autoencoder,
        codes: Codes,
        latents: list[int] | Table,
        observations: Tensor | None,
        *,
        method: str,
        batch: int,
    ) -> None:
        self.autoencoder, self.codes, self.latents = autoencoder, codes, latents
        self.method, self.batch = method, batch  # codes to decode at once
        x = self._decode(codes) if observations is None else observations
        self.x = x.flatten(1).double()

    @property
    def points(self) -> Codes:
        """The active latents of the codes."""
        if isinstance(self.latents, list):
            return self.codes[:, self.latents].double()
        return self.codes.gather(1, self.latents).double()

    def __getitem__(self, rows: Tensor) -> "Local":
        part = object.__new__(Local)
        latents = self.latents if isinstance(self.latents, list) else self.latents[rows]
        own = {"codes": self.codes[rows], "x": self.x[rows], "latents": latents}
        part.__dict__ |= self.__dict__ | own
        return part

    def alike(self) -> list[Tensor]:
        """The rows that have the same latents, together."""
        if isinstance(self.latents, list):
            return [torch.arange(len(self.codes))]
        _, which = self.latents.unique(dim=0, return_inverse=True)
        return [torch.nonzero(which == k)[:, 0] for k in range(int(which.max()) + 1)]

    def _decode(self, codes: Codes) -> Float[Tensor, "samples features"]:
        return decode(self.autoencoder, codes, batch=self.batch).flatten(1).double()

    def offsets(self, W: Matrix) -> Float[Tensor, "samples features"]:
        """What a linear decoder adds to W z."""
        return self._decode(self.codes) - self.points @ W.T

    def around(self, row: int, active: Codes) -> Float[Tensor, "draws features"]:
        """Decoded codes that differ from that of a row in the active latents only."""
        return self._decode(self._full(row, active))

    def _full(self, row: int, active: Codes) -> Float[Tensor, "samples all_latents"]:
        full = self.codes[row].repeat(len(active), 1)
        own = self.latents if isinstance(self.latents, list) else self.latents[row]
        full[:, own] = active.to(full)
        return full

    def errors(self, active: Draws) -> Float[Tensor, "samples draws"]:
        """|x - decode(z)|² for several z of each observation."""
        size = max(1, DECODED_BYTES // (8 * self.x.shape[1]))
        return torch.stack(
            [
                torch.cat([(self.around(row, few) - x).square().sum(1) for few in each.split(size)])
                for row, (each, x) in enumerate(zip(active, self.x, strict=True))
            ]
        )

    def derivatives(self, active: Draws) -> tuple[Tensor, Tensor, Tensor]:
        """|r|², J^T r and J^T J, r = x - decode(z), for several z of each observation."""
        samples, draws, latents = active.shape
        codes = torch.cat([self._full(row, each) for row, each in enumerate(active)])
        squares = active.new_empty(len(codes))
        gradients = active.new_empty(len(codes), latents)
        grams = active.new_empty(len(codes), latents, latents)
        own = self.latents
        own = own if isinstance(own, list) else own.repeat_interleave(draws, 0)
        for rows, x, J in Walk(self.autoencoder, codes, own, method=self.method):
            for few in torch.arange(len(x)).split(max(1, DECODED_BYTES // (8 * J[0].numel()))):
                place = rows.start + few
                rest = self.x[place // draws] - x[few].flatten(1).double().cpu()
                columns = J[few].double().cpu()
                squares[place] = rest.square().sum(1)
                gradients[place] = torch.einsum("nkp,np->nk", columns, rest)
                grams[place] = columns @ columns.mT
        parts = squares, gradients, grams
        first, second, third = (part.unflatten(0, (samples, draws)) for part in parts)
        return first, second, third


def linear_weights(local: Local, generator: Generator) -> Matrix | None:
    """The weights W of a decoder that is linear (or affine) in its latents; None of others.

    The latents are the same for all points (see `Local.alike`). Around some points, codes drawn
    from the prior are decoded: all must be where W says.
    """
    few = local[torch.arange(min(PROBES, len(local.codes)))]
    first = few[torch.arange(1)]
    walk = Walk(local.autoencoder, first.codes, first.latents, method=local.method)
    _, _, J = next(iter(walk))
    W = J[0].double().cpu().T
    largest = worst = 0.0
    for row, point in enumerate(few.points):
        moved = torch.randn(PROBES, len(point), generator=generator, dtype=torch.float64)
        decoded = few.around(row, torch.cat([point[None], moved]))
        change = decoded[1:] - decoded[0]
        largest = max(largest, float(change.abs().max()), float(decoded.abs().max()))
        worst = max(worst, float((change - (moved - point) @ W.T).abs().max()))
    return W if worst <= 64 * walk.precision * largest else None


def linear_likelihoods(local: Local, W: Matrix, precision: float) -> Likelihoods:
    """Both exactly, for a decoder W z + b."""
    y = local.x - local.offsets(W)
    eye = torch.eye(W.shape[1], dtype=torch.float64)
    root = torch.linalg.cholesky(eye + precision * W.T @ W)
    best = torch.cholesky_solve(precision * W.T @ y.T, root).T
    energy = precision * (y - best @ W.T).square().sum(1) + best.square().sum(1)
    log_determinant = 2 * root.diagonal().log().sum()
    constant = y.shape[1] * math.log(2 * math.pi / precision)
    log_likelihood = -0.5 * (constant + log_determinant + energy)
    gap = rotation_excess(W, beta=2 / precision) * precision / 2
    return Likelihoods(log_likelihood, log_likelihood - gap, None, 0)


def sampled_likelihoods(
    local: Local,
    precision: float,
    start: Codes,
    *,
    draws: int,
    noise: int,
    steps: int,
    generator: Generator,
) -> tuple[Likelihoods, Codes]:
    """Both by sampling, and the most probable codes; the search for these begins at `start`."""
    latents = start.shape[1]
    best, _ = minimise(_energy(local, precision), start, steps)
    gram = local.derivatives(best[:, None])[2][:, 0]
    eye = torch.eye(latents, dtype=torch.float64)
    root = torch.linalg.cholesky(eye + precision * gram)
    constant = local.x.shape[1] * math.log(2 * math.pi / precision)

    shocks = torch.randn(len(best), draws, latents, generator=generator, dtype=torch.float64)
    z = best[:, None] + torch.linalg.solve_triangular(root.mT, shocks.mT, upper=True).mT
    log_joint = -0.5 * (constant + precision * local.errors(z) + z.square().sum(2))
    log_proposal = root.diagonal(dim1=1, dim2=2).log().sum(1)[:, None] - 0.5 * shocks.square().sum(
        2
    )
    weights = log_joint - log_proposal
    total = weights.logsumexp(1)
    effective = (2 * total - (2 * weights).logsumexp(1)).exp()

    few = paired_noise(noise + 2 * latents, latents, generator)
    spread = -0.5 * (1 + precision * gram.diagonal(dim1=1, dim2=2)).log()
    loss = _negative_elbo(local, precision, few)
    found, left = minimise(loss, torch.cat([best, spread], 1), steps)
    means, spreads = found[:, :latents], found[:, latents:].exp()
    many = paired_noise(max(draws, 2 * latents + 2), latents, generator)
    errors = local.errors(means[:, None] + spreads[:, None] * many).mean(1)
    kl = 0.5 * (means.square() + spreads.square() - 1).sum(1) - spreads.log().sum(1)
    elbo = -0.5 * (constant + precision * errors) - kl
    result = Likelihoods(total - math.log(draws), elbo, effective, int((left > 1e-3).sum()))
    return result, best


def paired_noise(count: int, latents: int, generator: Generator) -> Codes:
    """Normal draws in pairs ±ε whose covariance is exactly I; at least twice as many as latents."""
    half = torch.randn(-(-count // 2), latents, generator=generator, dtype=torch.float64)
    covariance = half.T @ half / len(half)
    whitened = torch.linalg.solve_triangular(
        torch.linalg.cholesky(covariance), half.T, upper=False
    ).T
    return torch.cat([whitened, -whitened])


def _energy(local: Local, precision: float) -> Values:
    """-log p(x, z) up to a constant, of one code for each observation."""

    def values(codes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = local[rows].derivatives(codes[:, None])
        squares, gradients, grams = (part[:, 0] for part in parts)
        loss = 0.5 * (precision * squares + codes.square().sum(1))
        eye = torch.eye(codes.shape[1], dtype=torch.float64)
        return loss, codes - precision * gradients, eye + precision * grams

    return values


def _negative_elbo(local: Local, precision: float, noise: Codes) -> Values:
    """-ELBO up to a constant, of means and log standard deviations, over fixed noises."""
    latents = noise.shape[1]

    def values(parameters: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        means, logs = parameters[:, :latents], parameters[:, latents:]
        moves = logs.exp()[:, None] * noise  # dz / d log σ
        squares, gradients, grams = local[rows].derivatives(means[:, None] + moves)
        variances = (2 * logs).exp()
        loss = 0.5 * (precision * squares.mean(1) + (means.square() + variances).sum(1))
        loss = loss - logs.sum(1)
        by_mean = means - precision * gradients.mean(1)
        by_log = variances - 1 - precision * (gradients * moves).mean(1)
        # B = [J, J diag(moves)], and the mean of B^T B
        crossed = (grams * moves[:, :, None]).mean(1)
        moved = (grams * moves[:, :, None] * moves[..., None]).mean(1)
        top = torch.cat([grams.mean(1), crossed], 2)
        hessian = precision * torch.cat([top, torch.cat([crossed.mT, moved], 2)], 1)
        own = torch.cat([torch.ones_like(means), 2 * variances], 1)
        return loss, torch.cat([by_mean, by_log], 1), hessian + torch.diag_embed(own)

    size = max(1, DECODED_BYTES // (8 * len(noise) * latents**2))

    def in_parts(parameters: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pairs = zip(parameters.split(size), rows.split(size), strict=True)
        loss, gradient, hessian = zip(*(values(*pair) for pair in pairs), strict=True)
        return torch.cat(loss), torch.cat(gradient), torch.cat(hessian)

    return in_parts


def minimise(values: Values, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Levenberg-Marquardt, for all rows at once: (parameters, how much each could still fall).

    At most `steps` trials of each row; it is left alone once it is expected to fall by less than
    1e-5 nats.
    """
    parameters = start.double().clone()
    loss, gradient, hessian = values(parameters, torch.arange(len(start)))
    damping = torch.full_like(loss, 1e-3)
    for _ in range(steps):
        diagonal = torch.diag_embed(hessian.diagonal(dim1=1, dim2=2) * damping[:, None])
        step = -torch.linalg.solve(hessian + diagonal, gradient)
        [rows] = torch.nonzero(-0.5 * (step * gradient).sum(1) > ENOUGH, as_tuple=True)
        if not len(rows):
            break
        trial = parameters[rows] + step[rows]
        new = values(trial, rows)
        better = new[0] < loss[rows]
        damping[rows] = torch.where(better, damping[rows] / 10, damping[rows] * 10)
        good = rows[better]
        parameters[good], loss[good] = trial[better], new[0][better]
        gradient[good], hessian[good] = new[1][better], new[2][better]
    left = 0.5 * (gradient * torch.linalg.solve(hessian, gradient)).sum(1)
    return parameters, left
