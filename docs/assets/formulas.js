// Set the formulas of a page: the LaTeX is in `data-tex`, the plain text is what is there without
// JavaScript.
for (const formula of document.querySelectorAll(".tex")) {
  formula.setAttribute("aria-label", formula.textContent.trim())
  katex.render(formula.dataset.tex, formula, {
    displayMode: formula.tagName === "DIV",
    throwOnError: false,
  })
}
