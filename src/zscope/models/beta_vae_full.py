"""β-VAE with full covariance: a β-VAE whose latents may be correlated in the posterior.

    loss = E_q[ -log p(x | z) ] + β KL( N(μ, L Lᵀ) || N(0, I) )
    KL   = 1/2 ( ||μ||² + ||L||² - log det L Lᵀ - d ),      z = μ + L ε

The encoder gives μ, the logarithms of the diagonal of L, and its entries below. Rotating
the latents leaves both terms unchanged, so nothing aligns the decoder with principal
directions: a control for the effect of the diagonal posterior of a β-VAE. With
`posterior=gaussian` it is the β-VAE. Zietlow 2022, section 3.2.7.
"""

from zscope.models.beta_vae import BETA, beta_vae
from zscope.models.entry import Entry
from zscope.models.vae import POINT

__all__ = ["ENTRY"]

ENTRY = Entry(
    name="beta-vae-full",
    title="β-VAE with full covariance: a β-VAE whose latents may be correlated in the posterior",
    formula="E_q[-log p(x | z)] + β KL(N(μ, L Lᵀ) || N(0, I))",
    paper="Zietlow, PhD thesis, Tübingen 2022, section 3.2.7",
    summary=__doc__ or "",
    objective=beta_vae,
    divergence_weight="beta",
    posterior="full",
    refuses={"point": POINT},
    options={"beta": BETA},
)
