"""Model definitions that the tutorials, tests and benchmarks use; weights are random."""

from tutorials.models.cnn import CNN, clothes
from tutorials.models.densenet import densenet121
from tutorials.models.mobilenet import mobilenet_v2
from tutorials.models.resnet import resnet18, resnet50

__all__ = ["CNN", "clothes", "densenet121", "mobilenet_v2", "resnet18", "resnet50"]
