"""What the sinks hold is what the account says, whatever happened to the cache."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import STEPS, Machine


@pytest.mark.slow
def test_no_row_is_lost_doubled_or_left_behind_whatever_happens_to_a_cache():
    slowly = settings(stateful_step_count=STEPS, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Machine, settings=slowly)
