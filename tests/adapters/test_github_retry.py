"""What GitHub's answers mean for the next request; numbers are those of its documentation."""

from __future__ import annotations

import datetime as dt

import pytest

from fedops.adapters.github_errors import UnclearError, error_of
from fedops.adapters.github_retry import MAX_PAUSE, Answer, pause_before_next, resets_at
from fedops.core.errors import SpentError
from fedops.core.facts import Json

NOW = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
EPOCH = int(NOW.timestamp())
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


def answer(status: int, message: str = "", **headers: str) -> Answer:
    return Answer(
        status, {k.replace("_", "-"): v for k, v in headers.items()}, {"message": message} if message else None
    )


def pause(got: Answer, tries: int = 1, *, may_repeat: bool = True) -> float | None:
    return pause_before_next(got, tries, NOW, may_repeat=may_repeat)


@pytest.mark.parametrize("status", [400, 401, 404, 405, 409, 410, 422, 451])
def test_a_refusal_is_never_repeated(status: int) -> None:
    assert pause(answer(status, "no")) is None


def test_a_403_without_any_word_of_a_limit_is_not_repeated() -> None:
    assert pause(answer(403, "Resource not accessible by integration")) is None
    assert pause(answer(403, "Resource not accessible", x_ratelimit_remaining="12")) is None


@pytest.mark.parametrize("status", [403, 429])
def test_retry_after_is_kept_to_the_second_even_for_what_may_not_be_done_twice(status: int) -> None:
    assert pause(answer(status, SECONDARY, retry_after="17"), may_repeat=False) == 17


def test_retry_after_may_be_a_moment_by_the_server_s_own_clock() -> None:
    got = answer(429, retry_after="Mon, 02 Mar 2026 12:00:30 GMT", date="Mon, 02 Mar 2026 12:00:00 GMT")
    assert pause(got) == 30
    assert pause(answer(429, retry_after="Mon, 02 Mar 2026 09:31:00 GMT")) == 60
    assert pause(answer(429, retry_after="Mon, 02 Mar 2026 09:00:00 GMT")) == 1, "past: at once, but not in a storm"
    assert pause(answer(429, retry_after="soon")) == 60
    assert pause(answer(429, retry_after="Mon, 02 Mar 2026 09:31:00 -0000")) == 60


def test_a_secondary_limit_without_a_time_waits_a_minute_then_longer() -> None:
    assert [pause(answer(403, SECONDARY), tries) for tries in (1, 2, 3, 4, 5)] == [60, 120, 240, 480, None]


def test_a_spent_limit_waits_for_its_reset() -> None:
    got = answer(
        403, "API rate limit exceeded for user ID 1.", x_ratelimit_remaining="0", x_ratelimit_reset=str(EPOCH + 90)
    )
    assert pause(got) == 91
    assert resets_at(got) == NOW + dt.timedelta(seconds=90)


def test_a_wait_that_is_too_long_is_said_and_not_done() -> None:
    reset = EPOCH + int(MAX_PAUSE) + 1
    got = answer(429, x_ratelimit_remaining="0", x_ratelimit_reset=str(reset))
    assert pause(got) is None
    error = error_of("GET", "/repos/o/n/issues", got)
    assert (error.slug, error.cause) == ("rate_limited", "temporary")
    assert dt.datetime.fromtimestamp(reset, dt.UTC).strftime("%H:%M:%S") in error.message


def test_a_limit_says_until_when_by_the_server_s_own_clock() -> None:
    server = "Wed, 01 Jul 2026 09:58:30 GMT"

    def said(**headers: str) -> str:
        return error_of("GET", "/repos/o/n/issues", answer(429, **headers)).message

    assert "until 10:58:30 UTC" in said(retry_after="3600", date=server)
    assert "until 11:07:03 UTC" in said(retry_after="Wed, 01 Jul 2026 11:07:03 GMT")
    assert "until" not in said(retry_after="3600"), "nobody knows from when on"
    assert isinstance(error_of("GET", "/x", answer(429)), SpentError)


@pytest.mark.parametrize("reset", ["", "x", "-5", "²", "9" * 30])
def test_a_reset_that_is_no_time_is_none(reset: str) -> None:
    assert pause(answer(429, x_ratelimit_remaining="0", x_ratelimit_reset=reset)) == 60


@pytest.mark.parametrize("status", [0, 500, 502, 503])
def test_a_fault_is_repeated_where_it_does_no_harm_and_not_for_ever(status: int) -> None:
    assert [pause(answer(status), tries) for tries in (1, 2, 3)] == [1, 2, None]
    assert pause(answer(status), may_repeat=False) is None
    assert isinstance(error_of("POST", "/x", answer(status)), UnclearError)


@pytest.mark.parametrize(
    ("status", "slug", "cause"),
    [
        (401, "auth_failed", "auth"),
        (403, "auth_failed", "auth"),
        (404, "github_rejected", "permanent"),
        (422, "github_rejected", "permanent"),
        (307, "github_rejected", "permanent"),
        (502, "github_rejected", "temporary"),
        (0, "github_rejected", "temporary"),
    ],
)
def test_a_refusal_has_its_slug_and_cause(status: int, slug: str, cause: str) -> None:
    error = error_of("PUT", "/repos/o/n/pulls/7/merge", answer(status, "no"))
    assert (error.slug, error.cause) == (slug, cause)
    assert "PUT /repos/o/n/pulls/7/merge" in error.message
    assert error.hint


def test_a_message_says_what_github_says_and_cannot_steer_a_terminal() -> None:
    data: Json = {
        "message": "Validation Failed\x1b[2J",
        "errors": [{"field": "name", "code": "already_exists"}, "x", {}],
    }
    assert Answer(422, {}, data).said == "Validation Failed\x1b[2J: name already_exists, x"
    shown = error_of("POST", "/repos/o/n/labels", Answer(422, {}, data)).message
    assert "Validation Failed" in shown
    assert "\x1b" not in shown
    assert Answer(200, {}, [1]).said == ""
    assert Answer(0, {}, None, "ConnectTimeout").said == "ConnectTimeout"
