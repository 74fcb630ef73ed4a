"""A few programs on the stand-in for a GPU (tests/gpu/stand_in), where torch is a build for CUDA:
`python -m tests.gpu.stand_in values` runs all.
"""

from __future__ import annotations

import pytest

from tests.gpu.stand_in.__main__ import run
from tests.gpu.stand_in.building import missing

WHY = missing()
pytestmark = pytest.mark.skipif(WHY is not None, reason=str(WHY))

SAMPLE = {
    "values": (
        "attention_of_torchs_choice",  # the first of its process
        "scalars_of_the_cpu", "the_second_device", "streams", "random_numbers_go_on",
        "autocast_bfloat16", "libraries_by_name", "results_that_live_on", "AdamW fused scaled",
        "measured_choices_are_remembered", "attention_of_repeated_keys", "joint_weights",
        "weights_in_the_layout_of_images", "weights_in_the_layout_of_images_captured",
        "group_norm_of_channels_innermost",
    ),
    "launches": ("scalars_of_the_cpu",),
}  # fmt: skip


@pytest.mark.parametrize("mode", SAMPLE)
def test_programs(mode):
    lines = list(run(mode, "cuda", *SAMPLE[mode]))
    wrong = [f"{line['program']}: {line['error']}" for line in lines if line["error"]]
    assert not wrong, "\n".join(wrong)
    assert [line["program"] for line in lines] == [*SAMPLE[mode]]
    assert sum(line["launches"] for line in lines) >= len(lines)
