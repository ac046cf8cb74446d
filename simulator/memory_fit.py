"""Whether a step fits into memory, in one word, and how near to the limit a prediction is no longer safe."""

from typing import Literal

Fit = Literal["fits", "border", "does not fit", "breaks a rule"]
"""border: predicted to fit, but too narrowly to be sure; breaks a rule: of the runtime, whatever the memory."""
BORDER = 0.94
"""Of the limit: closer, a verdict is not safe, as predicted peaks are some per cent off."""
