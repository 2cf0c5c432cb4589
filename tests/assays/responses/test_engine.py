import pytest
import torch
from torch import nn
from worlds import World, curved, gaussian_codes, identity, responding

import zscope as zs
from zscope.assays.engine import (
    chunk_size,
    decode,
    decode_and_respond,
    respond,
    respond_posterior,
    responses,
    use_memory,
)
from zscope.errors import ConfigError, InterfaceError


class Small(zs.Autoencoder):
    """Linear layers with dropout and a batch norm; notes the largest batch."""

    def __init__(self, latents=3, hidden=16, pixels=8):
        super().__init__()
        self.latents = latents
        generator = torch.Generator().manual_seed(0)
        self.decoder = nn.Sequential(
            nn.Linear(latents, hidden), nn.BatchNorm1d(hidden), nn.Dropout(0.5), nn.ReLU()
        )
        self.out = nn.Linear(hidden, pixels)
        self.encoder = nn.Linear(pixels, 2 * latents)
        for parameter in self.parameters():
            parameter.data.normal_(generator=generator)
        self.largest = 0

    def encode(self, x, auxiliary=None):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        return zs.Posterior(mean, (log_variance / 20).exp())

    def decode(self, z):
        self.largest = max(self.largest, len(z))
        return self.out(self.decoder(z))


def made(**options):
    with torch.random.fork_rng():  # the layers' own initialisation is thrown away
        return Small(**options)


def test_the_response_is_the_mean_of_the_encoded_decoded_code():
    model, codes = made().eval(), torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model.encode(model.decode(codes))
    assert torch.equal(respond(model, codes), expected.mean)
    assert torch.equal(respond_posterior(model, codes).std, expected.std)


@pytest.mark.parametrize("budget", [1, 4_000, 40_000])
def test_a_smaller_budget_gives_the_same_numbers(budget):
    model, codes = made(), torch.randn(101, 3, generator=torch.Generator().manual_seed(1))
    whole = respond_posterior(model, codes)
    with use_memory(budget):
        parts = respond_posterior(model, codes)
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close(parts.std, whole.std)


def test_the_budget_sets_the_largest_batch_whatever_the_number_of_codes():
    model = made(hidden=1000)  # 4,000 bytes a code in its widest layer
    for count in (500, 5000):
        model.largest = 0
        with use_memory(1_600_000):
            respond(model, torch.zeros(count, 3))
        assert 80 <= model.largest <= 100  # 4 such layers at once: 100 codes


def test_codes_built_on_the_fly_exist_one_chunk_at_a_time():
    model, asked = made(hidden=1000), []

    def build(start, stop):
        asked.append(stop - start)
        return torch.zeros(stop - start, 3)

    with use_memory(400_000):
        covered = [(a, b, len(p)) for a, b, p in responses(model, 1000, build)]
    assert max(asked) <= 25
    assert [a for a, _, _ in covered] == [0, *(b for _, b, _ in covered[:-1])]
    assert covered[-1][1] == 1000
    assert all(b - a == n for a, b, n in covered)


def test_chunks_are_even_so_that_no_code_is_left_alone():
    # 4 x 4,000 bytes a code: room for 100, and 101 codes are 51 + 50.
    with use_memory(1_600_000):
        assert chunk_size(made(hidden=1000), torch.zeros(2, 3), 101) == 51


def test_plain_functions_are_sized_by_their_observations():
    wide = World(lambda z: z.repeat(1, 1000), lambda x: x[:, :2], 2)
    narrow = identity(2)
    z = torch.zeros(2, 2)
    with use_memory(10**7):
        assert chunk_size(wide, z, 10**6) < chunk_size(narrow, z, 10**6)


def test_the_model_is_measured_in_evaluation_mode_and_left_as_it_was():
    model, codes = made(), torch.zeros(40, 3)
    model.train()
    model.out.eval()
    first, second = respond(model, codes), respond(model, codes)
    assert torch.equal(first, second)  # no dropout
    assert not first.requires_grad
    assert model.training
    assert not model.out.training
    assert model.decoder[1].running_mean.abs().sum() == 0  # the batch norm learned nothing
    assert not any(module._forward_hooks for module in model.modules())


def test_gradients_are_left_on_for_the_caller_between_chunks():
    with use_memory(1):
        parts = responses(made(), 10, lambda a, b: torch.zeros(b - a, 3))
        next(parts)
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_answers_have_the_dtype_of_the_codes(dtype):
    assert respond(made(), torch.zeros(4, 3, dtype=dtype)).dtype == dtype
    assert respond(curved(3), torch.zeros(4, 3, dtype=dtype)).dtype == dtype


def test_decode_gives_every_observation():
    model, codes = made().eval(), torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), use_memory(5000):
        torch.testing.assert_close(decode(model, codes), model.decode(codes))


def test_no_codes_have_no_response():
    assert respond(identity(3), torch.zeros(0, 3)).shape == (0, 3)


def test_nan_of_a_decoder_is_reported_with_its_latent_vector():
    def decoder(z):
        return torch.where(z[:, :1] > 2, torch.nan, z)

    codes = gaussian_codes(1000, 2).clamp(-1, 1)
    codes[637] = torch.tensor([2.5, -0.125])
    codes[900] = torch.tensor([2.5, 0.5])
    broken = World(decoder, torch.nan_to_num, 2)  # the encoder hides it
    for budget in (10**9, 4000):
        message = r"decoder gave NaN.*latent vector 637: \[2.5, -0.125\]"
        with use_memory(budget), pytest.raises(InterfaceError, match=message):
            respond(broken, codes)


@pytest.mark.parametrize(
    ("shape", "place", "words"),
    [
        ((3, 4, 4), (1, 2, 3), "colour 1 at pixel 2, 3"),
        ((2, 3, 4, 2), (1, 2, 3, 0), "colour 1 of frame 2 at pixel 3, 0"),
        ((2, 24), (1, 17), "number 1, 17 of its output"),
    ],
)
def test_nan_in_one_place_is_reported_with_it(shape, place, words):
    def broken(z):
        x = z.reshape(-1, *shape).clone()
        x[(3, *place)] = torch.nan  # of the fourth code
        return x

    codes = torch.zeros(6, 48)
    model = World(broken, lambda x: torch.nan_to_num(x).flatten(1), 48)
    with pytest.raises(InterfaceError, match=f"decoder gave NaN.*1 of 6 .* {words} .* vector 3"):
        zs.assays.engine.decode_and_respond(model, codes)
    turned = World(torch.nan_to_num, lambda x: broken(x).flatten(1), 48)
    turned.layout = zs.Layout(shape[0], shape[1:])
    where = f"channel 1 at place {', '.join(map(str, place[1:]))}"
    with pytest.raises(InterfaceError, match=f"encoder gave NaN.* {where} for latent vector 3"):
        zs.assays.engine.decode_and_respond(turned, codes)


def test_infinity_of_an_encoder_is_laid_at_its_door():
    def encoder(x):
        return torch.where(x[:, :1] > 2, torch.inf, x)

    codes = torch.zeros(20, 2)
    codes[7, 0] = 3
    with pytest.raises(InterfaceError, match=r"encoder gave NaN or infinite.*latent vector 7"):
        respond(responding(encoder, 2), codes)


def test_large_finite_numbers_are_no_error():
    huge = World(lambda z: torch.full_like(z, 3e38), torch.zeros_like, 2)
    assert respond(huge, torch.zeros(10, 2)).abs().sum() == 0


@pytest.mark.parametrize(
    ("decoder", "encoder", "said"),
    [
        (lambda z: z[:1], lambda x: x, "given 2 codes and returned shape"),
        (lambda z: z.sum(), lambda x: x, "one observation for each code"),
        (lambda z: z, lambda x: x[:1], "were encoded again to shape"),
        (lambda z: z, lambda x: x[:, :1], "as many latents as the decoder takes"),
    ],
)
def test_a_model_that_changes_the_batch_or_the_latents_is_refused(decoder, encoder, said):
    with pytest.raises(InterfaceError, match=said):
        respond(World(decoder, encoder, 2), torch.zeros(8, 2))


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="0 bytes leaves no room"), use_memory(0):
        respond(identity(2), torch.zeros(3, 2))


def test_one_pass_decodes_and_responds_as_the_two_do_apart():
    model, codes = made(), gaussian_codes(5, 3).float()
    x, posterior = decode_and_respond(model, codes)
    assert torch.equal(x, decode(model, codes))
    assert torch.equal(posterior.mean, respond(model, codes))
    assert torch.equal(posterior.std, respond_posterior(model, codes).std)
