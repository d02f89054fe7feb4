"""Why a row has no verdict, in words that others look for; the gate reads them without numpy."""

TOO_COARSE = "times of zero: the clock is too coarse for this case"
FENCE_BOUND = "fence-bound, use back-to-back or graph"
