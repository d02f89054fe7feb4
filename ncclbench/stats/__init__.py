"""From samples to summaries with intervals."""
