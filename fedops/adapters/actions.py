"""GitHub Actions from inside of a job: start a workflow by the job's own token, the one event that such a token may make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import requests

from fedops.core.errors import Cause, ForgeError

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Actions:
    """The Actions of one repository.

    Args:
        api_url: such as https://api.github.com.
        repository: owner/name.
        token: of the job; it needs the right `actions: write`.
    """

    api_url: str
    repository: str
    token: str = field(repr=False)

    def dispatch(self, workflow: str, branch: str, inputs: Mapping[str, str]) -> None:
        """Start a workflow on a branch; asked twice, it runs twice.

        Args:
            workflow: its file's name.

        Raises:
            ForgeError: auth, temporary, or permanent (no such workflow, branch or input).
        """
        url = f"{self.api_url}/repos/{quote(self.repository)}/actions/workflows/{quote(workflow, safe='')}/dispatches"
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/vnd.github+json"}
        try:
            # NOTE: never redirected, since the token would go along.
            answer = requests.post(
                url,
                json={"ref": branch, "inputs": dict(inputs)},
                headers=headers,
                timeout=TIMEOUT_SECONDS,
                allow_redirects=False,
            )
        except requests.RequestException as e:
            raise ForgeError(
                f"{self.api_url}: start {workflow}: no answer ({type(e).__name__})",
                hint="nothing is lost: the schedule starts the next run",
                cause="temporary",
            ) from e
        # 204 from older servers; newer ones answer 200 with the run's id.
        if answer.status_code not in (200, 204):
            raise _refusal(workflow, answer.status_code)


def _refusal(workflow: str, code: int) -> ForgeError:
    cause: Cause = "auth" if code in (401, 403) else "temporary" if code == 429 or code >= 500 else "permanent"
    hint = {
        "auth": "the job needs `permissions: actions: write`",
        "temporary": "nothing is lost: the schedule starts the next run",
        "permanent": "is the file on the branch, with workflow_dispatch and this input? `fedops upgrade --check`",
    }[cause]
    return ForgeError(f"start {workflow}: HTTP {code} -> 204", hint=hint, cause=cause)
