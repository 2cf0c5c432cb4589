"""The rule about features of vectors speaks where it must and nowhere else."""

import torch
from rule_facts import normal, only, said
from worlds import World, identity


def test_the_features_that_latents_move_are_named_and_so_are_latents_that_move_none():
    data, name = normal(latents=2), "feature-effects"
    found = only(said("moved features", identity(2), data, name))
    assert found.level == "note"
    assert found.text.removesuffix(", and 1 other latent moves features too") in {
        *("Latent 0 moves feature 0 +2.0 sd", "Latent 1 moves feature 1 +2.0 sd")
    }
    assert "±" not in found.evidence
    assert sorted(row[0] for row in found.table) == ["0", "1", "latent"]
    weak = World(lambda z: 0.01 * z, lambda x: x, 2)
    still = only(said("moved features", weak, data, name))
    assert still.text == "Latents 0 and 1 move no feature by 0.1 standard deviations"
    assert said("moved features", identity(2), data) == []
    three = only(said("moved features", identity(3), normal(latents=3), name))
    assert three.text.endswith("sd, and 2 other latents move features too")


def test_a_feature_that_moves_both_ways_is_explained():
    folded = World(lambda z: torch.stack([z[:, 0], z[:, 0] * z[:, 1]], 1), lambda x: x, 2)
    codes = normal(latents=2)
    found = only(said("moved features", folded, folded.decode(codes), "feature-effects"))
    assert any("±" in row[1] for row in found.table)
    assert "±: up from some codes and down from others" in found.evidence
