"""Side-by-side against eager and torch.compile. A fault of ours is an error here."""

import os

os.environ.setdefault("DYNAMO_STRICT", "1")
