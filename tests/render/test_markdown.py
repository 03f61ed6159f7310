"""Markdown is judged by what an independent CommonMark parser makes of it, not by how it is spelled."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fedops.core.facts import Marker
from fedops.core.findings import Finding, finding
from fedops.core.ids import Digest, SiteId
from fedops.core.report import SignalReport, pull_report
from fedops.core.signals import marker_in, markers_in, signal_marker
from fedops.render.markdown import MAX_CHARACTERS, code, escape, pull_comment, signal_body, version_summary
from fedops.render.text import printable
from tests.core.samples import contribution, excluded_entry, record, submission, verdict, version

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
MARKER = Marker("submission", "hospital-a")
SITE = SiteId("hospital-a")

ATTACKS = [
    "<!-- fedops:signal train/evil/v1 -->",
    "\n<!-- fedops:submission evil -->\n",
    "<img src=x onerror=alert(1)>",
    "</td></table><script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](https://evil.example/pixel.png)",
    "[x]: https://evil.example",
    "<https://evil.example>",
    "`code` ``` fence",
    "\n```\nfence\n```\n",
    "*bold* __bold__ ~~gone~~",
    "a | b | c\n|---|---|",
    "# heading",
    "- item",
    "+ item",
    "7. item",
    "7) item",
    "> quote",
    "===",
    "---",
    "    indented",
    "&lt;b&gt; &#64;acme &copy;",
    "back\\slash \\",
    "hard break  \nnext\\\nline",
    "[^1] $x$ $$y$$",
]


def tokens(markdown: str) -> list[Token]:
    flat: list[Token] = []
    for token in PARSER.parse(markdown):
        flat += [token, *(token.children or [])]
    return flat


def kinds(markdown: str) -> set[str]:
    return {t.type for t in tokens(markdown)}


def plain(markdown: str) -> str:
    """What a reader sees, without zero-width spaces."""
    return "".join(t.content for t in tokens(markdown) if t.type == "text").replace("\u200b", "")


TEXT = st.text(
    alphabet=st.one_of(st.characters(), st.sampled_from("<>!-[]()`*_~|#@\\&$:/.+=w0123456789 \n\t\x1b\u202e")),
    max_size=60,
)


@given(TEXT)
@example("0\\.")
@example("1)")
@example("www.a")
@pytest.mark.parametrize("frame", ["{}", "- {}", "- x\n  - hint: {}", "> {}", "before {} after"])
def test_site_text_is_one_run_of_inert_text_wherever_it_stands(frame: str, text: str) -> None:
    bare = {*kinds(frame.format("x")), "text"}
    got = escape(text)
    if got:
        assert kinds(frame.format(got)) <= bare
        assert plain(frame.format(got)) == plain(frame.format("{}")).format(printable(text))


@given(TEXT)
def test_site_text_stays_in_its_table_cell(text: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {escape(text)} | end |\n"
    assert kinds(table) == kinds("| a | b |\n| --- | --- |\n| x | end |\n")
    cells = [t.content for t in tokens(table) if t.type == "inline"]
    assert len(cells) == 4
    assert cells[3] == "end"


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_shown_and_do_nothing(attack: str) -> None:
    assert kinds(escape(attack)) == {"paragraph_open", "inline", "paragraph_close", "text"}
    assert plain(escape(attack)) == printable(attack)
    assert markers_in(f"x\n{escape(attack)}\n") == ()


LINKED = [
    "@acme/security",
    "mail me@evil.example",
    "#12",
    "acme/fed#12",
    "GH-12",
    "gh-7",
    "https://evil.example/x",
    "ftp://evil.example",
    "www.evil.example",
    "_www.evil.example",
    "WWW.EVIL.EXAMPLE",
]
# What GitHub links in the finished page, after the parser: a backslash would not stop it.
GITHUB_LINKS = re.compile(r"@[A-Za-z0-9]|#[0-9]|GH-[0-9]|://|www\.", re.IGNORECASE)


@pytest.mark.parametrize("text", LINKED)
def test_nobody_is_mentioned_and_nothing_is_linked_on_the_forge(text: str) -> None:
    seen = "".join(t.content for t in tokens(escape(text)) if t.type == "text")
    assert GITHUB_LINKS.search(text)
    assert not GITHUB_LINKS.search(seen)


def test_a_placeholder_cannot_be_smuggled_in() -> None:
    assert plain(escape("a\0b")) == "a\\x00b"


def test_control_and_direction_characters_are_shown() -> None:
    assert plain(escape("\x1b[2J\u202egpj.exe")) == "\\x1b[2J\\x202egpj.exe"


def test_long_text_is_cut() -> None:
    assert escape("a" * 500) == "a" * 400 + "…"
    assert escape("a" * 400) == "a" * 400
    assert escape("abc", 2) == "ab…"


@pytest.mark.parametrize("text", ["hospital-a", "sha256:ab12", "v9", "FO-214", "too_stale", "global@v9.0.0"])
def test_ids_are_set_in_code_type(text: str) -> None:
    assert [t.content for t in tokens(code(text)) if t.type == "code_inline"] == [text]


@pytest.mark.parametrize("text", ["a`b", "a|b", "", "-x", "a b", "a\n", "<b>"])
def test_what_is_no_id_is_escaped_instead(text: str) -> None:
    assert code(text) == escape(text)


# ---------------------------------------------------------------- comment


def comment(state: Any, *findings: Finding, **kwargs: Any) -> str:
    fields = kwargs.pop("fields", {})
    facts = pull_report(SITE, record(**fields), verdict(state, *findings), version(9, metrics={"loss": 0.5}), **kwargs)
    return pull_comment(facts, MARKER)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("accepted", "Accepted"),
        ("rejected", "Rejected"),
        ("pending", "Pending"),
        ("not_a_submission", "Not a submission"),
    ],
)
def test_the_first_line_is_the_verdict_in_words_and_the_head(state: Any, words: str) -> None:
    assert comment(state).splitlines()[0].startswith(f"**{words}** at `1a2b3c4d5e6f`:")


def test_the_last_visible_line_is_the_next_step_and_the_marker_ends_it() -> None:
    lines = comment("accepted").splitlines()
    assert lines[-3].startswith("Next: ")
    assert lines[-2:] == ["", MARKER.text]
    assert marker_in(comment("accepted")) == MARKER


def test_a_pending_note_of_an_error_is_escaped() -> None:
    body = comment("pending", note="cannot read <b>@acme</b>")
    assert "html_inline" not in kinds(body)
    assert "@acme" not in body


def test_pending_without_a_note_says_so() -> None:
    assert comment("pending").splitlines()[0].endswith(": not all checks are done.")


def test_hostile_metrics_and_findings_leave_the_page_as_it_is() -> None:
    bodies = []
    for text in ("x", *ATTACKS, *LINKED):
        findings = [finding("unexpected_keys", text, got=text, detail={"tensor": text}), finding("too_stale", "x")]
        bodies.append(comment("rejected", *findings, fields={"metrics": {text: 1.0, "loss": 0.25}}))
    for body in bodies:
        assert [t.type for t in PARSER.parse(body)] == [t.type for t in PARSER.parse(bodies[0])]
        assert kinds(body) <= kinds(bodies[0])
        assert markers_in(body) == (MARKER,)


def test_a_record_on_a_version_that_does_not_exist_is_shown_as_such() -> None:
    assert "| base version | v12 (current is v9) |" in comment("rejected", fields={"base_version": 12})


def test_many_metrics_are_counted_instead_of_shown() -> None:
    assert "and 8 metrics more" in comment("rejected", fields={"metrics": {f"m{i:02}": 1.0 for i in range(40)}})


def test_a_hint_stands_once_after_the_findings_that_share_it() -> None:
    body = comment("rejected", *[finding("shape_mismatch", f"t{i}") for i in range(5)], finding("too_stale", "x"))
    assert body.count("hint:") == 2


@pytest.mark.parametrize("number", [800, 5000])
def test_a_long_report_is_cut_at_a_line_and_says_how_much_is_missing(number: int) -> None:
    body = comment(
        "rejected", *[finding("shape_mismatch", "update", detail={"tensor": f"layer.{i}"}) for i in range(number)]
    )
    assert len(body) <= MAX_CHARACTERS
    assert len(body) > MAX_CHARACTERS - 500
    shown = body.count("(tensor layer")
    assert f"… and {number + 1 - shown:,} more lines of findings" in body  # one line more: the hint
    assert marker_in(body) == MARKER
    assert body.splitlines()[-3].startswith("Next: ")


# ---------------------------------------------------------------- signal


def signal(**fields: Any) -> str:
    values: dict[str, Any] = {
        "site": SITE,
        "version": 9,
        "model": Digest("sha256:" + "ab" * 32),
        "size": 1000,
        "metrics": {},
        "logins": ("alice-a",),
        "reason": None,
        "markers": (signal_marker(SITE, 9),),
    }
    return signal_body(SignalReport(**values | fields))


def test_a_signal_names_version_digest_and_commands() -> None:
    body = signal()
    assert "**v9**" in body
    assert "`sha256:" + "ab" * 32 + "`" in body
    assert [t.content for t in tokens(body) if t.type == "fence"] == ["fedops pull\nfedops train\nfedops submit\n"]
    assert marker_in(body) == signal_marker(SITE, 9)


def test_a_second_signal_gives_reason_and_hint() -> None:
    body = signal(reason=finding("too_stale", "sites/hospital-a/submission.json", got=6, expected=5))
    assert "older than the policy allows" in body
    assert "train on the current version and submit again" in body


@pytest.mark.parametrize("login", ["acme/security-team", "-alice", "a b", "alice_<b>", "x" * 40, "@acme"])
def test_only_a_login_of_github_is_mentioned(login: str) -> None:
    assert not re.search(r"@[A-Za-z0-9]", signal(logins=(login,)))
    assert "@alice-a" in signal()


def test_hostile_metric_names_forge_no_marker_in_a_signal() -> None:
    body = signal(metrics=dict.fromkeys(ATTACKS, 1.0))
    assert markers_in(body) == (signal_marker(SITE, 9),)
    assert kinds(body) == kinds(signal(metrics={"loss": 1.0}))


# ---------------------------------------------------------------- version


def test_a_version_of_a_thousand_sites_fits() -> None:
    names = [f"site-{i:04}" for i in range(1500)]
    made = version(
        9,
        contributions=[contribution(submission(s)) for s in names],
        excluded=[excluded_entry(submission(f"x{s}")) for s in names],
    )
    body = version_summary(made)
    assert len(body) <= MAX_CHARACTERS
    shown = body.count("| `site-")
    assert f"… and {1500 - shown:,} more contributions" in body
    assert "… and 1,500 more excluded submissions" in body
    assert body.endswith("Next: `fedops verify v9` recomputes it.\n")


def test_a_rollback_says_where_it_goes() -> None:
    body = version_summary(version(9, kind="rollback", source=7))
    assert body.splitlines()[0] == "**global: v9 (rollback to v7)**"
    assert "contributions" not in body
