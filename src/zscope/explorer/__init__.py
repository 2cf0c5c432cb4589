"""The explorer: a live page in the browser. `zscope explore TARGET` starts it."""
