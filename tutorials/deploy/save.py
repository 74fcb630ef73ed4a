"""Writes the program that classify.cpp runs: `python tutorials/deploy/save.py mobilenet.fg`.

Beside it: mobilenet.fg.inputs, raw float32 images, and mobilenet.fg.scores, what eager makes of
them.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import dynamo
from tutorials.models.mobilenet import MobileNetV2

torch.manual_seed(0)
model = MobileNetV2(10)
images = torch.randn(8, 3, 32, 32)
for layer in model.modules():
    if isinstance(layer, torch.nn.BatchNorm2d):
        layer.momentum = None
model(images)  # gives the batch norms their statistics, as training would
model.eval()

path = sys.argv[1] if len(sys.argv) > 1 else "mobilenet.fg"
dynamo.mark_dynamic(images, 0, min=2, max=64)
with torch.no_grad():
    dynamo.export(model)(images).save(path, standalone=True)
    images.numpy().tofile(f"{path}.inputs")
    model(images).numpy().tofile(f"{path}.scores")
