"""Formulas of docstrings become LaTeX that says the same, or stay as they are."""

import html
import re

import pytest
from scripts import docs_script

import zscope as zs
from zscope.assays import CATALOGUE

latex = docs_script("latex")
formulas = docs_script("formulas")

AS_THEY_ARE_SET = {
    "PR = (sum_i lambda_i)^2 / sum_i lambda_i^2": (
        r"\text{PR } = \frac{\left( \sum_{i} \lambda_{i} \right)^{2}}{\sum_{i} \lambda_{i}^{2}}"
    ),
    "M*_mj": r"M^{*}_{m j}",
    "E ||z'_k - z_k||^2": r"E \lVert z'_{k} - z_{k} \rVert^{2}",
    "-log p(x | z)": r"- \log p ( x \mid z )",
    "KL( q(z | x) || N(0, I) )": (r"\operatorname{KL} ( q ( z \mid x ) \,\|\, N ( 0 , I ) )"),
    "E_q(z)[ D(z) ]": r"E_{q ( z )} [ D ( z ) ]",
    "sum_{i≠j} K_ij²": r"\sum_{i \ne j} K_{i j}^{2}",
    "I(z_first; y_k) <= sum_j I_j": (r"I ( z_{\text{first}} ; y_{k} ) \le \sum_{j} I_{j}"),
    "mean over factors k of  y_k / H": r"\text{mean over factors } k \text{ of } \frac{y_{k}}{H}",
    "|<h_i, x_j>|": r"\lvert \langle h_{i} , x_{j} \rangle \rvert",
    "s_j^2 (1 - ρ²)^-1": r"s_{j}^{2} \left( 1 - \rho^{2} \right)^{-1}",
    "straight_cost": r"\texttt{straight\_cost}",
    "|Y^T X|_*": r"\left| Y^{T} X \right|_{*}",
    "x̂ - z̄": r"\hat{x} - \bar{z}",
    "10 log10( L^2 / MSE_i )": r"10 \log_{10} \left( \frac{L^{2}}{\mathrm{MSE}_{i}} \right)",
    "integral of ( C(z) + t ) ds": r"\int ( C ( z ) + t ) \,ds",
    "sum of all": r"\text{sum of all}",
}


@pytest.mark.parametrize("text", AS_THEY_ARE_SET)
def test_a_formula_is_set_as_it_is_meant(text):
    assert latex.latex(text) == AS_THEY_ARE_SET[text]


VALUES = {"a": 2.0, "b": 3.0, "c": 5.0, "d": 7.0}
# What is written in a docstring, and what it means.
ARITHMETIC = {
    "a / b": 2 / 3,
    "a b / c d": (2 * 3) / (5 * 7),
    "a b / (c d)": (2 * 3) / (5 * 7),
    "a / (b) c d": (2 / 3) * 5 * 7,
    "a/b c": (2 / 3) * 5,
    "1/2 a + b / c": 0.5 * 2 + 3 / 5,
    "a - (b - c) / d": 2 - (3 - 5) / 7,
    "(a + b) (c + d) / ((a - b) (c - d))": (5 * 12) / ((-1) * (-2)),
    "(a + b)^2 / c^2": 25 / 25,
    "a/(b c) d": 2 / 15 * 7,
    "2/d a b": 2 / 7 * 2 * 3,
    "1/a^2 b": 1 / 4 * 3,
    "(a - b)/2c": -1 / 10,
    "sqrt( a / b )": (2 / 3) ** 0.5,
    "( a / b + c / d ) / (a + b)": (2 / 3 + 5 / 7) / 5,
}


def value(tex: str) -> float:
    """The number that LaTeX of letters, fractions and powers stands for."""
    braces = r"((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)"
    while re.search(r"\\(?:frac|sqrt)", tex):
        tex = re.sub(rf"\\frac\{{{braces}\}}\{{{braces}\}}", r"((\1)/(\2))", tex)
        tex = re.sub(rf"\\sqrt\{{{braces}\}}", r"((\1)**0.5)", tex)
    tex = re.sub(r"\\left|\\right", "", tex)
    tex = re.sub(r"\^\{([^{}]*)\}", r"**(\1)", tex)
    tex = re.sub(r"(?<=[\w)])\s+(?=[\w(])", " * ", tex)
    return eval(tex, {}, VALUES)


@pytest.mark.parametrize("text", ARITHMETIC)
def test_fractions_mean_what_was_written(text):
    assert value(latex.latex(text)) == pytest.approx(ARITHMETIC[text])


def test_a_sum_is_over_the_fraction_if_the_denominator_has_its_index():
    inside = latex.latex("sum_s C_s / (C_s + t)")
    assert inside == r"\sum_{s} \frac{C_{s}}{C_{s} + t}"
    ratio_of_sums = latex.latex("sum_i i w_ik / sum_i w_ik")
    assert ratio_of_sums == r"\frac{\sum_{i} i w_{i k}}{\sum_{i} w_{i k}}"
    assert latex.latex("sum_j r_j / sum_i R_ij") == r"\sum_{j} \frac{r_{j}}{\sum_{i} R_{i j}}"


@pytest.mark.parametrize(
    "text",
    [
        "(a + b",
        "a)",
        "|a",
        "a / b / c",
        "log a / b",
        "/ a",
        "a /",
        "^2",
        "a ? b",
        "sqrt",
        "channels x places",
        "a picture -> [layer] x halvings",
    ],
)
def test_what_can_be_read_in_two_ways_or_not_at_all_is_refused(text):
    with pytest.raises(latex.Unreadable):
        latex.latex(text)


def test_what_cannot_be_read_stays_a_block_of_text():
    assert formulas.typeset("Before\n\n    a / b / c\n\nafter") == (
        "Before\n\n```text\na / b / c\n```\n\nafter"
    )


def test_code_stays_code():
    assert "```python\nzs.assays.mig(recording)" in formulas.typeset(
        "For example\n\n    zs.assays.mig(recording)\n    near = 3"
    )


def test_formulas_with_words_beside_them_become_a_table():
    text = "    plain    a / b     the share of the first\n    other    1 / b     what is not in it"
    shown = formulas.typeset(text)
    assert shown.count("<tr>") == 2
    assert r'data-tex="\displaystyle \frac{a}{b}"' in shown
    assert "<td>plain</td>" in shown
    assert "the share of the first</td>" in shown


def test_signs_of_several_rows_stand_below_each_other():
    tex = tex_of(formulas.typeset("    SS = a + b\n    TC = c"))
    assert tex == [
        r"\begin{array}{ll} \displaystyle \text{SS} & \displaystyle = a + b \\[0.4em] "
        r"\displaystyle \text{TC} & \displaystyle = c \end{array}"
    ]


def test_letters_with_a_subscript_are_set_in_prose_but_not_in_code():
    shown = formulas.typeset("with v_i^2 the variances, `v_i` in code, and keep_this < that")
    assert tex_of(shown) == ["v_{i}^{2}"]
    assert "`v_i` in code" in shown
    assert "keep_this &lt; that" in shown


def tex_of(text: str) -> list[str]:
    return [html.unescape(tex) for tex in re.findall(r'data-tex="([^"]*)"', text)]


def test_nearly_all_formulas_of_the_assays_are_set_and_their_braces_match():
    shown = {name: formulas.typeset(entry.cite) for name, entry in CATALOGUE.items()}
    texts = {name for name, text in shown.items() if "```text" in text}
    assert len(texts) <= 2, texts
    every = [tex for text in shown.values() for tex in tex_of(text)]
    assert len(every) > 200
    for tex in every:
        assert tex.count("{") == tex.count("}"), tex
        assert tex.count(r"\left") == tex.count(r"\right"), tex
    models = {name: formulas.typeset(zs.models.entry(name).summary) for name in zs.models.names()}
    assert {name for name, text in models.items() if "```text" in text} == {"spatial-vae"}


def test_latex_between_dollars_of_a_page_is_set_and_code_is_left_alone():
    page = "With $z_j$ of\n$$ \\sum_j z_j\n  < 1 $$\nin `$HOME` for $5 or $6:\n\n    echo $a $b\n\n"
    page += "```\n$x$\n```\nand $R(z) = z$."
    text = formulas.in_dollars(page)
    assert re.findall('data-tex="([^"]+)"', text) == ["z_j", r"\sum_j z_j &lt; 1", "R(z) = z"]
    assert text.count("<div") == 1
    for code in ("`$HOME`", "$5 or $6", "echo $a $b", "```\n$x$\n```"):
        assert code in text


def test_no_page_of_the_guide_has_a_dollar_that_is_not_set():
    for page in sorted((docs_script("build").HERE / "guide").glob("*.md")):
        prose = re.sub(
            r"^```.*?^```|^ {4}[^\n]*|`[^`\n]+`", "", page.read_text(), flags=re.S | re.M
        )
        assert "$" not in formulas.in_dollars(prose), page.name
