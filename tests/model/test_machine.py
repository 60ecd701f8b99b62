"""What the sinks hold is what the account says, whatever happened."""

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Machine


def test_no_row_is_lost_doubled_or_left_behind_whatever_happens_to_a_cache():
    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=15))
