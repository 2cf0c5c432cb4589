"""Formulas in the plain text of docstrings as LaTeX.

    (sum_i lambda_i)^2 / sum_i lambda_i^2

What is read: names with subscripts and superscripts, Greek letters by name or as themselves,
brackets, |x| and ||x||, conditions p(x | z), sums, comparisons, and words. A slash without spaces
binds its neighbours only (1/2 sum_j x_j); with spaces around it the numerator is all that was
multiplied before it, and the denominator a bracket, or, if there is none, all that is multiplied
after it. A sum is over the fraction if the denominator has its index. What could be read in two
ways, or not at all, raises `Unreadable`.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["MARKED_LETTER", "PAIRS", "WORDS", "Unreadable", "latex"]

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi "
    "psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega"
)
SYMBOLS = dict(
    zip(
        "αβγδεζηθκλμνξπρστφχψωΓΔΘΛΣΦΨΩ",
        ("\\" + name for name in GREEK.split()),
        strict=True,
    )
)
NAMED = (
    "Var Cov Tr KL MMD diag softplus softmax sigmoid erf corr atan2 mean Laplace CE MLP RMSE MSE "
    "HSIC std decode encode decoder encoder replace ID AUC"
)
"""Words that are functions or numbers rather than text."""
WORDS = {
    **{name: ("\\" + name, "atom") for name in GREEK.split()},
    **{
        name: ("\\" + name, "function")
        for name in ("log", "exp", "min", "max", "det", "cos", "sin", "arccos", "sup", "inf", "lim")
    },
    **{name: (rf"\operatorname{{{name}}}", "function") for name in NAMED.split()},
    "sum": (r"\sum", "operator"),
    "prod": (r"\prod", "operator"),
    "integral": (r"\int", "operator"),
    "infinity": (r"\infty", "atom"),
    "sqrt": (r"\sqrt", "root"),
    "log10": (r"\log_{10}", "function"),
    "eps": (r"\epsilon", "atom"),
    "ds": (r"\,ds", "atom"),
}
SIGNS = {
    "<=": r"\le", "≤": r"\le", ">=": r"\ge", "≥": r"\ge", "!=": r"\ne", "≠": r"\ne",
    "~": r"\sim", "≈": r"\approx", "−": "-", "±": r"\pm", "…": r"\dots",
    "*": r"\cdot", "×": r"\times", "⊙": r"\odot", "·": r"\cdot", "%": r"\%",
}  # fmt: skip
"""Those that LaTeX writes differently."""
MARKS = {"\u0304": r"\bar", "\u0302": r"\hat", "\u0303": r"\tilde"}
PAIRS = {"(": ")", "[": "]", "{": "}"}

MARKED_LETTER = r"[A-Za-zα-ωΑ-Ω](?:[\u0302-\u0304])?"
TOKEN = re.compile(
    rf"""(?P<space>\s+)
    |(?P<number>\d[\d,]*\d(?:\.\d+)?%?|\d+(?:\.\d+)?%?|\.\d+)
    |(?P<word>[A-Za-z]{{2,}}(?:-[A-Za-z]+)+|{MARKED_LETTER}[A-Za-z0-9]*(?:'s\b)?)
    |(?P<marks>['†]+|(?<=\w)\*(?=[_)(])|(?<=\w)~(?=\)))
    |(?P<sub>_(?:\{{[^{{}}]*\}}|\*|[~.]?(?:(?![²³ᵀ])[\w†])+(?:,(?=\w)(?:(?![²³ᵀ])[\w†])+)*(?:\.(?=[)|]))?))
    |(?P<sup>\^(?:\(|\{{|-?\d+/\d+|-?\w+|\*|T)|[²³ᵀ])
    |(?P<relation><=|>=|!=|[=<>~≈≠≤≥])
    |(?P<bars>\|\||\|)
    |(?P<open>[(\[{{])|(?P<close>[)\]}}])
    |(?P<slash>/)
    |(?P<dots>\.\.+)
    |(?P<product>[·⊙×*])
    |(?P<sign>[-+−±,;:….%])""",
    re.VERBOSE,
)


class Unreadable(ValueError):
    """A text that is no formula, or one that would perhaps be set wrongly."""


@dataclass
class Atom:
    """Something that can be multiplied, compared or divided."""

    tex: str
    kind: str  # atom, text, relation, sign, slash, function
    spaced: bool = False  # whether a space stands before it
    bracket: str = ""  # the content, if it is a pair of round brackets
    added: str = ""  # what a bar carries: |x|^2
    word: str = ""  # an operator or a function as it was written


def latex(text: str) -> str:
    """A formula in plain text as LaTeX; `Unreadable` if it cannot be read."""
    text = re.sub(r"\bE_(\w)\((\w)\)", r"E_{\1(\2)}", text)  # the expectation under q(z)
    return set_terms(Reader(text).read(""))


class Reader:
    """Tokens as atoms, brackets first."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str, bool]] = []
        if "->" in text:
            raise Unreadable("a diagram")
        place, spaced = 0, False
        while place < len(text):
            found = TOKEN.match(text, place)
            if not found:
                raise Unreadable(f"{text[place:]!r}")
            kind = str(found.lastgroup)
            if kind == "space":
                spaced = True
            else:
                self.tokens.append((kind, found[0], spaced))
                spaced = False
            place = found.end()
        self.place = 0

    def read(self, until: str) -> list[Atom]:
        """Atoms up to the closing bracket."""
        atoms: list[Atom] = []
        while self.place < len(self.tokens):
            kind, token, spaced = self.tokens[self.place]
            self.place += 1
            if kind == "close":
                if token != until:
                    raise Unreadable(f"{token!r} closes nothing")
                return pair_bars(atoms)
            atoms += self.atom(kind, token, spaced, atoms)
        if until:
            raise Unreadable(f"there is no {until!r}")
        return pair_bars(atoms)

    def atom(self, kind: str, token: str, spaced: bool, before: list[Atom]) -> list[Atom]:
        """What a token adds: an atom, or nothing if it decorates the one before."""
        if kind == "open":
            return [self.bracket(token, spaced)]
        if kind == "word":
            return [word_atom(token, spaced)]
        if kind in {"sub", "sup", "marks"}:
            if not before or before[-1].kind in {"relation", "sign", "slash"}:
                raise Unreadable(f"{token!r} belongs to nothing")
            self.decorate(before[-1], kind, token)
            return []
        if kind == "slash":  # with a space on one side it divides all that is there
            spaced = spaced or self.next_is_spaced()
        elif token == "<" and not self.next_is_spaced():
            token = "<angle"
        if kind in {"number", "dots"}:
            tex = token.replace(",", "{,}").replace("%", r"\%") if kind == "number" else r"\dots"
            return [Atom(tex, "atom", spaced)]
        return [Atom(SIGNS.get(token, token), kind, spaced)]

    def next_is_spaced(self) -> bool:
        return self.place >= len(self.tokens) or self.tokens[self.place][2]

    def bracket(self, token: str, spaced: bool) -> Atom:
        inner = set_terms(self.read(PAIRS[token]))
        left, right = (r"\{", r"\}") if token == "{" else (token, PAIRS[token])
        return Atom(
            fence(left, inner, right), "atom", spaced, bracket=inner if token == "(" else ""
        )

    def decorate(self, atom: Atom, kind: str, token: str) -> None:
        """Add a subscript, a superscript or a mark."""
        if kind == "marks":
            signs = {"'": "'", "†": r"^{\dagger}", "*": r"^{*}", "~": r"^{\sim}"}
            add = "".join(signs[sign] for sign in token)
        elif kind == "sub":
            content = token[1:]
            content = content[1:-1] if content.startswith("{") else content
            add = f"_{{{subscript(content)}}}"
        elif token in "²³ᵀ":
            add = {"²": "^{2}", "³": "^{3}", "ᵀ": "^{T}"}[token]
        elif token in {"^(", "^{"}:
            inner = self.read(PAIRS[token[1]])
            add = f"^{{{set_terms(inner, small=True)}}}"
        else:
            add = f"^{{{token[1:]}}}"
        if atom.kind == "bars":
            atom.added += add
            return
        if atom.kind == "text":  # a word with a subscript is a name
            if re.fullmatch(r"_[a-z]{3,}", token):
                atom.tex, atom.kind = rf"\texttt{{{atom.tex}\_{token[1:]}}}", "atom"
                return
            atom.tex, atom.kind = rf"\text{{{atom.tex}}}", "atom"
        if add.startswith("^") and re.search(r"(?:'+|\^\{[^{}]*\})(?:_\{[^{}]*\})?$", atom.tex):
            atom.tex = f"{{{atom.tex}}}"
        atom.tex += add
        atom.bracket = ""


def fence(left: str, inner: str, right: str) -> str:
    """Brackets that grow with what they hold, if that is higher than a line."""
    if re.search(r"\\(?:frac|sum|prod|sqrt|int)(?![a-z])|\^\{|\\left", inner):
        return rf"\left{left} {inner} \right{right}"
    if left == right == "|":
        left, right = r"\lvert", r"\rvert"
    elif left == right:
        left, right = r"\lVert", r"\rVert"
    return f"{left} {inner} {right}"


def word_atom(word: str, spaced: bool) -> Atom:
    """A letter, a name, an operator or a word."""
    if word in WORDS:
        tex, kind = WORDS[word]
        return Atom(tex, kind, spaced, word=word)
    if len(word) == 2 and word[1] in MARKS:
        tex, kind = f"{MARKS[word[1]]}{{{letter(word[0])}}}", "atom"
    elif len(word) == 1 or re.fullmatch(r"[α-ωΑ-Ω][A-Za-zα-ωΑ-Ω]|[A-Za-z][α-ωΑ-Ω]", word):
        tex, kind = " ".join(map(letter, word)), "atom"
    elif re.fullmatch(r"[A-Za-z]\d+", word):
        tex, kind = f"{word[0]}_{{{word[1:]}}}", "atom"
    elif re.search(r"[α-ωΑ-Ω]", word):
        raise Unreadable(word)
    else:
        tex, kind = word, "text"
    return Atom(tex, kind, spaced)


def letter(sign: str) -> str:
    return SYMBOLS.get(sign, sign)


def subscript(content: str) -> str:
    """Indices are letters, or a word such as `first`; longer ones are expressions."""
    if content == "*":
        return "*"
    if content.startswith("~"):
        return rf"\sim {subscript(content[1:])}"
    if re.fullmatch(r"[\w.,]+", content):
        pieces = content.split(",")
        return ",".join(
            "".join(rf"{letter(sign)} " for sign in piece).strip()
            if len(piece) <= 2 or all(sign in "ijkmnpuv0123456789" for sign in piece)
            else "\\" + piece
            if piece in GREEK.split()
            else rf"\text{{{piece}}}"
            for piece in pieces
        )
    return set_terms(Reader(content).read(""), small=True)


def pair_bars(atoms: list[Atom]) -> list[Atom]:
    """|x| and ||x|| as one atom each; a single bar is a condition, a single || a divergence."""
    atoms = enclose_angles(atoms)
    for bar, single in (("||", r"\,\|\,"), ("|", r"\mid")):
        places = [i for i, atom in enumerate(atoms) if atom.kind == "bars" and atom.tex == bar]
        if len(places) == 1 and (bar == "||" or 0 < places[0] < len(atoms) - 1):
            atoms[places[0]] = Atom(single, "relation", True)
        elif len(places) % 2:
            raise Unreadable("an odd number of bars")
        else:
            atoms = enclose(atoms, places, r"\|" if bar == "||" else "|")
    return atoms


def enclose(atoms: list[Atom], places: list[int], sign: str) -> list[Atom]:
    result = list(atoms)
    for first, last in reversed(list(zip(places[::2], places[1::2], strict=True))):
        # What decorates the closing bar was added to it.
        inner = result[first + 1 : last]
        if not inner or result[first].added:
            raise Unreadable("nothing between bars")
        tex = fence(sign, set_terms(inner), sign) + result[last].added
        result[first : last + 1] = [Atom(tex, "atom", result[first].spaced)]
    return result


def enclose_angles(atoms: list[Atom]) -> list[Atom]:
    for first, atom in enumerate(atoms):
        if atom.tex == "<angle":
            last = next((i for i in range(first, len(atoms)) if atoms[i].tex == ">"), None)
            if last is None:
                raise Unreadable("'<' before a letter")
            inner = set_terms(atoms[first + 1 : last])
            angles = Atom(rf"\langle {inner} \rangle", "atom", atom.spaced)
            return enclose_angles([*atoms[:first], angles, *atoms[last + 1 :]])
    return atoms


def set_terms(atoms: list[Atom], small: bool = False) -> str:
    """Atoms as LaTeX: terms between signs, relations and words, each with its fractions."""
    pieces: list[str] = []
    term: list[Atom] = []

    def close() -> None:
        if term:
            pieces.append(set_term(list(term), small))
            term.clear()

    joined = join_text(atoms)
    for before, atom, after in zip(joined, joined[1:], joined[2:], strict=False):
        is_variable = before.tex.split()[-1:] in (["over"], ["of"], ["for"], ["with"], ["in"])
        if atom.tex == "x" and before.kind == after.kind == "text" and not is_variable:
            raise Unreadable("x may mean times: channels x places")
    for atom in joined:
        if atom.kind == "text" and term and term[-1].kind == "slash":
            term.append(Atom(rf"\text{{{atom.tex.strip()}}}", "atom", True))
        elif atom.kind in {"relation", "sign", "text"}:
            close()
            pieces.append(rf"\text{{{atom.tex}}}" if atom.kind == "text" else atom.tex)
        elif atom.kind == "bars":
            raise Unreadable("a bar that is not paired")
        else:
            term.append(atom)
    close()
    return " ".join(pieces)


def join_text(atoms: list[Atom]) -> list[Atom]:
    """Words that follow each other as one text, with the spaces around it."""
    result: list[Atom] = []
    for number, atom in enumerate(atoms):
        following = atoms[number + 1] if number + 1 < len(atoms) else None
        before = result[-1] if result and result[-1].kind == "text" else None
        if not is_word(atom, before, following):
            result.append(atom)
            continue
        if atom.word == "integral":  # "integral of" is the sign
            atoms[number + 1].tex = ""
            result.append(atom)
            continue
        content = re.sub(r"([%#&$_{}])", r"\\\1", atom.word or atom.tex)
        if not content:
            continue
        content += " " if following is not None and following.spaced else ""
        if before:
            before.tex += content
        else:
            lead = " " if result and atom.spaced else ""
            result.append(Atom(lead + content, "text", atom.spaced))
    return result


def is_word(atom: Atom, before: Atom | None, following: Atom | None) -> bool:
    """Whether an atom is a word of a text: "sum of", "geometric mean", "by a latent"."""
    if atom.kind == "text":
        return True
    precedes = following is not None and following.kind == "text"
    if atom.word in {"sum", "prod", "max", "min", "mean", "integral"} and "_" not in atom.tex:
        return precedes or (before is not None and following is None)
    return atom.tex == "a" and before is not None and precedes


def set_term(atoms: list[Atom], small: bool) -> str:
    """A product with its divisions."""
    if atoms[-1].kind == "function":  # a number: KL + ...
        thin = r"\," if len(atoms) > 1 and atoms[-2].kind != "slash" else ""
        atoms[-1].tex = atoms[-1].tex.replace(r"\operatorname", thin + r"\mathrm")
    atoms = apply_roots(atoms)
    atoms = divide_neighbours(atoms, small)
    slashes = [i for i, atom in enumerate(atoms) if atom.kind == "slash"]
    if not slashes:
        return " ".join(atom.tex for atom in atoms)
    if len(slashes) > 1 or slashes[0] in (0, len(atoms) - 1):
        raise Unreadable("more than one division in a term")
    over, under = atoms[: slashes[0]], atoms[slashes[0] + 1 :]
    for atom, argument in pairwise(over):
        if atom.word in {"log", "exp", "det", "cos", "sin", "arccos"} and not argument.bracket:
            raise Unreadable(f"{atom.word} of what is divided, or of all that is there?")
    rest: list[Atom] = []
    if under[0].bracket:
        under, rest = under[:1], under[1:]
    lead: list[Atom] = []
    while len(over) > 1 and over[0].word in {"sum", "prod"} and depends(under, over[0]):
        lead, over = [*lead, over[0]], over[1:]
    pieces = [*(atom.tex for atom in lead), fraction(over, under, small)]
    return " ".join([*pieces, *(atom.tex for atom in rest)])


def depends(under: list[Atom], total: Atom) -> bool:
    """Whether a denominator has the index of a sum, so that the sum is over the fraction."""
    tex = " ".join(atom.tex for atom in under)
    bound = "".join(re.findall(r"\\(?:sum|prod|max|min)_\{([^{}]*)\}", tex))
    free = re.sub(r"\\(?:sum|prod|max|min)_\{[^{}]*\}|\\[A-Za-z]+", "", tex)
    indices = set(re.findall(r"[a-z]", re.sub(r"\\[A-Za-z]+(?:\{[^{}]*\})?", "", total.tex)))
    return bool((indices - set(bound)) & set(re.findall(r"[a-z]", free)))


def fraction(over: list[Atom], under: list[Atom], small: bool) -> str:
    above, below = (
        side[0].bracket if len(side) == 1 and side[0].bracket else " ".join(a.tex for a in side)
        for side in (over, under)
    )
    if small and len(over) == len(under) == 1:
        return f"{above} / {below}"
    return rf"\frac{{{above}}}{{{below}}}"


def apply_roots(atoms: list[Atom]) -> list[Atom]:
    result: list[Atom] = []
    place = 0
    while place < len(atoms):
        atom = atoms[place]
        if atom.kind == "root":
            if place + 1 >= len(atoms):
                raise Unreadable("the root of nothing")
            inner = atoms[place + 1]
            content = inner.bracket or inner.tex
            result.append(Atom(rf"\sqrt{{{content}}}", "atom", atom.spaced))
            place += 2
        else:
            result.append(atom)
            place += 1
    return result


def divide_neighbours(atoms: list[Atom], small: bool) -> list[Atom]:
    """a/b without spaces: what stands next to the slash, without a space between, on each side."""
    result = list(atoms)
    while True:
        place = next((i for i, a in enumerate(result) if a.kind == "slash" and not a.spaced), None)
        if place is None:
            return result
        first = place - 1
        while first > 0 and not result[first].spaced and result[first - 1].kind != "slash":
            first -= 1
        last = place + 1
        while (
            last + 1 < len(result)
            and not result[last + 1].spaced
            and result[last + 1].kind != "slash"
        ):
            last += 1
        if first < 0 or last >= len(result):
            raise Unreadable("a slash at the end")
        over, under = result[first:place], result[place + 1 : last + 1]
        tex = fraction(over, under, small)
        result[first : last + 1] = [Atom(tex, "atom", result[first].spaced)]
