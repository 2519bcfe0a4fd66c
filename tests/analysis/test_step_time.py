"The forecast of a step by hand, and what its floor hides."
import math
from dataclasses import replace

from torch.testing import assert_close

from annotated_transformer.analysis.step_time import GPU, _expected_normal_max, _step_times
from annotated_transformer.model.config import count_parameters, presets
from annotated_transformer.model.flops import PEAK_FLOPS, train_flops

def test_expected_maximum():
    "Of two normal numbers 1/√π, of three 3/(2√π)."
    assert_close([_expected_normal_max(n) for n in (1, 2, 3)], [0., 1 / math.sqrt(math.pi), 1.5 / math.sqrt(math.pi)])

def test_step_times_by_hand():
    "One GPU, two with infinitely fast links, then four and sixteen with links of 1 GB/s."
    ideal = GPU(peak=1e12, intra_node_bw=math.inf, price=0, mfu=.5, latency=0, launch_overhead=0, jitter=0)
    assert _step_times(3e12, 1e9, 1, ideal) == (6., 0., 0.)
    assert sum(_step_times(3e12, 1e9, 2, ideal)) == 3.
    assert _step_times(3e12, 1e9, 4, replace(ideal, intra_node_bw=1e9))[2] == 1.5
    assert _step_times(3e12, 1e9, 16, replace(ideal, inter_node_bw=1e9))[2] == 1.875

def test_launch_overhead_hides_the_faster_gpu():
    "On the paper's batch of base eight H100s gain on eight A100s only without the floor under a step; for big they gain with it."
    a100 = GPU(PEAK_FLOPS['A100'], intra_node_bw=300e9, price=2., inter_node_bw=200e9)
    h100 = GPU(PEAK_FLOPS['H100'], intra_node_bw=450e9, price=3., inter_node_bw=400e9)
    def gain(name, gpu):
        work = train_flops(presets[name], 1000, 25, 25), 4 * count_parameters(presets[name]), 8
        return sum(_step_times(*work, a100)) / sum(_step_times(*work, gpu))
    assert gain('base', h100) < 1.1 and gain('base', replace(h100, launch_overhead=0)) > 2.5 and gain('big', h100) > 2.5
