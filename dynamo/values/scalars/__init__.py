"""Numbers, texts and other literals: constants, symbols, their operators and conversions."""
