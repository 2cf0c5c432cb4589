"""A function of tensors as one list of plain operations, with the needless ones left out.

For networks of a few units, modules, transforms (vmap, grad) and autograd take longer at every
step than the arithmetic. So the function is recorded once (`make_fx`), its gradients included, and
the list of its operations is shortened:

- what changes nothing is dropped: a view as the same shape, a product with 1, two transpositions
- a product of matrices and the sum with a bias become one operation (baddbmm)
- what does not depend on the arguments is computed once
- what is computed twice is computed once
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["trace"]

aten = torch.ops.aten
SAME_NUMBERS = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
BY_ONE = (aten.mul.Scalar, aten.mul.Tensor, aten.div.Tensor, aten.pow.Tensor_Scalar)
OF_SHAPE = (aten.ones_like.default, aten.zeros_like.default, aten.full_like.default)


def trace(
    function: Callable[..., Sequence[Tensor]], arguments: Sequence[Tensor]
) -> Callable[..., Sequence[Tensor]]:
    """The operations of `function`, which takes and returns a flat list of tensors.

    They are those that it does with these arguments, whatever the values of later ones.
    """
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to load

    traced = make_fx(function)(*arguments)
    if not any(_changing(node) for node in traced.graph.nodes):
        _drop(traced.graph)
        traced.graph.eliminate_dead_code()  # whose products would seem to be used elsewhere too
        _join(traced.graph)
        _fold(traced)
        _merge(traced.graph)
    # The arguments are flat already: no code to take dicts and tuples apart.
    traced.graph.set_codegen(torch.fx.graph.CodeGen())
    traced.graph.eliminate_dead_code()
    traced.graph.lint()
    traced.recompile()
    plain: Callable[..., Sequence[Tensor]] = traced.forward
    return plain


def _changing(node: torch.fx.Node) -> bool:
    """Whether an operation writes into its arguments, or draws random numbers."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return node.op == "call_function" and target is not operator.getitem
    return target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags


def _drop(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if (same := _unchanged(node)) is not None:
            node.replace_all_uses_with(same)


def _unchanged(node: torch.fx.Node) -> torch.fx.Node | None:
    """An earlier node that has the numbers of this one already."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    source = node.args[0]
    if node.target is aten.transpose.int and source.target is aten.transpose.int:
        axes = [{axis % _value(node).ndim for axis in each.args[1:]} for each in (node, source)]
        before: Any = source.args[0]
        return before if axes[0] == axes[1] else None
    if not isinstance(_value(node), Tensor) or not _alike(node, source):
        return None
    by_one = node.target in BY_ONE and not isinstance(node.args[1], torch.fx.Node)
    same = node.target in SAME_NUMBERS or (by_one and node.args[1] == 1 and not node.kwargs)
    return source if same else None


def _join(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if node.target is not aten.add.Tensor or node.kwargs:
            continue
        for bias, product in (node.args, node.args[::-1]):
            if not isinstance(bias, torch.fx.Node) or not isinstance(product, torch.fx.Node):
                continue
            single = product.target is aten.bmm.default and len(product.users) == 1
            if single and _alike(node, product) and _value(bias).dtype == _value(node).dtype:
                with graph.inserting_before(node):
                    arguments = (bias, *product.args)
                    joined = graph.call_function(aten.baddbmm.default, arguments)
                joined.meta = node.meta
                node.replace_all_uses_with(joined)
                break


def _fold(traced: torch.fx.GraphModule) -> None:
    constants: dict[torch.fx.Node, Any] = {}
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            constants[node] = getattr(traced, node.target)
        elif node.op == "call_function" and node.target in OF_SHAPE:
            value = _value(node)
            empty = torch.empty(value.shape, dtype=value.dtype, device=value.device)
            constants[node] = node.target(empty, *node.args[1:])
        elif node.op == "call_function" and constants.keys() >= set(node.all_input_nodes):
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), constants.__getitem__)
            constants[node] = node.target(*args, **kwargs)
    for number, (node, value) in enumerate(constants.items()):
        if isinstance(value, Tensor) and not node.users.keys() <= constants.keys():
            traced.register_buffer(f"constant_{number}", value)
            with traced.graph.inserting_before(node):
                node.replace_all_uses_with(traced.graph.get_attr(f"constant_{number}"))


def _merge(graph: torch.fx.Graph) -> None:
    first: dict[str, torch.fx.Node] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            same = first.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
            if same is not node:
                node.replace_all_uses_with(same)


def _value(node: torch.fx.Node) -> Any:
    """The result of an operation, as far as its shape and its type."""
    return node.meta.get("val")


def _alike(node: torch.fx.Node, other: torch.fx.Node) -> bool:
    a, b = _value(node), _value(other)
    return isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype
