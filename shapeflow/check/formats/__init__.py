"""Reports for programs: JSON, SARIF, annotations of GitHub workflows, JUnit.

>>> text = document("sarif", reports)
"""

from __future__ import annotations

from collections.abc import Sequence

from shapeflow.check.problem import Report


def document(form: str, reports: Sequence[Report], *, strict: bool = False) -> str:
    """All reports in one format; `strict`: warnings count as failures, where the format has such."""
    from shapeflow.check.formats import github, json, junit, sarif

    if form == "junit":
        return junit.to_junit(reports, strict=strict)
    writers = {"json": json.to_json, "sarif": sarif.to_sarif, "github": github.to_github}
    return writers[form](reports)
