"""What holds for every test: how examples are generated.

Why the usual run draws the same examples every time: a change must not turn red by luck. New ones are looked for by
`make test-long`, which prints the seed that repeats it.
"""

from hypothesis import HealthCheck, settings

# No deadlines: how long an example takes says nothing about the code on a machine that others share.
settings.register_profile("usual", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile(
    "long", max_examples=2_000, deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("usual")
