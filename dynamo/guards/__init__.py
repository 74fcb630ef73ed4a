"""Where values came from, and what was assumed of them."""
