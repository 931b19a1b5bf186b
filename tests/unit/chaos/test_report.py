"""The page of a run: it says what the history says, in one file that loads nothing, and a browser shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos import archive
from chaos.checkers.all import judge_run
from chaos.history import elle
from chaos.history import history as histories
from chaos.history.moments import ANSWER_LOST, ROLLED_BACK, moments
from chaos.report import charts, page, serve
from chaos.run import CannotRun, ChaosRun, RunPlan
from holdfast.cli.app import main
from tests.unit.chaos.checkers.synthetic import SyntheticStory, clean, invented, lost

PLAN = RunPlan("W4", ("F1", "F3"), 20.0, 7)


def told(directory: Path, story: SyntheticStory) -> str:
    """The page of a run with this history."""
    run = ChaosRun(PLAN, directory, judge_run(story.history), story.history, 0, 1_795_000_000.0)
    (directory / "run.json").write_text(json.dumps(run.facts))
    (directory / "node1").mkdir(exist_ok=True)
    (directory / "node1" / "node.log").write_text("INFO <b>something & else</b>\n")
    return archive.tell(run).read_text()


def test_the_page_says_what_was_found_and_loads_nothing(tmp_path: Path) -> None:
    story = clean()
    invented(story)
    page = told(tmp_path, story)
    assert "nobody:0 at 0/9: nobody ever sent it" in page
    assert PLAN.command in page
    assert "F1 kill leader" in page
    assert page.count("<svg") == page.count("</svg>") == 3
    assert "&lt;b&gt;something &amp; else&lt;/b&gt;" in page, "what nodes log is text"
    assert not re.search(r"(src|href)=|@import|url\(", page), "it loads nothing, from nowhere"
    verdicts = re.findall(r"<b>(\w+)</b></td>.*?badge (\w+)", page)
    assert dict(verdicts)["C7"] == "FAILED"
    assert {name for name, result in verdicts if result == "FAILED"} == {"C7"}


def test_checkers_without_anything_to_judge_are_folded_away_and_hopes_explained(tmp_path: Path) -> None:
    told(tmp_path, clean())
    summary = json.loads((tmp_path / "report.json").read_text())
    for verdict in summary["verdicts"][:2]:
        verdict["result"] = "NODATA"
    summary["moments"] = {"an event was sent again, and acknowledged": 0}
    shown = page.page(summary)
    open_table, _, rest = shown.partition("<details>")
    folded = rest.partition("</details>")[0]
    assert open_table.count("badge PASSED") > 2
    assert "badge NODATA" not in open_table
    assert "2 checkers had nothing to judge (NODATA)</summary>" in folded
    assert folded.count("badge NODATA") == 2
    hopes = shown.partition("What a run hopes for")[2].partition("<table>")[0]
    assert "the run proves nothing" in hopes


def test_names_of_faults_stand_apart_from_each_other_and_from_the_picture() -> None:
    def fault(kind: str, from_s: float) -> dict[str, object]:
        return {"kind": f"{kind} hurt", "target": "n", "from_s": from_s, "in_force_s": from_s, "to_s": from_s + 9}

    crowd = [fault(kind, at_s / 4) for at_s, kind in enumerate(["F1", "F13C", "F3", "F16"] * 5)]
    calls = {f"transactor-{number}": [[0.0, 20.0, "ok", "call"]] for number in range(3)}
    summary = {"faults": [*crowd, fault("F18C", 99.9)], "leaders": [], "timeline": calls, "seconds": [], "calls": []}
    time = charts.Time(100.0)
    placed = charts.names(time, summary)
    assert len({name.lane for name in placed}) > 1
    boxes = [(name.lane, name.x, name.x + len(name.text) * charts.LETTER) for name in placed]
    for lane, begin, end in boxes:
        assert charts.LEFT <= begin < end <= charts.WIDTH
        assert not [one for one in boxes if one[0] == lane and one[1] != begin and begin < one[2] and one[1] < end]
    for picture in (charts.throughput, charts.latency, charts.timeline):
        drawn = picture(time, summary)
        lowest = max(float(y) for y in re.findall(r'class="fault" x="[^"]*" y="([^"]*)"', drawn))
        assert lowest < charts.top_of(time, summary)
        assert min(float(y) for y in re.findall(r'<rect [^>]*? y="([^"]*)"', drawn)) >= charts.top_of(time, summary)
    told = re.findall(r">(transactor-\d)<", charts.timeline(time, summary))
    assert told == sorted(calls), "each process has its own name"


def test_what_proves_a_violation_is_shown_with_it(tmp_path: Path) -> None:
    story = clean()
    lost(story)
    page = told(tmp_path, story)
    assert "b:0 was acknowledged at offset 2 and is gone (prefix)" in page
    assert "b produce, ok, 2.0 s to 2.5 s; sent b:0 (ok at 0/2)" in page


def test_a_past_run_is_judged_anew_from_its_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e '.[chaos]'")
    story = clean()
    told(tmp_path, story)
    histories.write(story.history, tmp_path / "history")
    again = archive.load(tmp_path)
    assert again.plan == PLAN
    assert again.history == story.history
    assert again.judgement.failed == []
    with pytest.raises(CannotRun, match="is no run"):
        archive.load(tmp_path / "node1")


def test_a_long_history_is_known_by_its_files_and_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e '.[chaos]'")
    story = clean()
    told(tmp_path, story)
    assert not archive.is_large(tmp_path), "one without tables"
    histories.write(story.history, tmp_path / "history")
    assert not archive.is_large(tmp_path)
    rows = sum(len(story.history.rows(name)) for name in ("sends", "reads", "replica_dump"))
    monkeypatch.setattr(archive, "IN_MEMORY_ROWS", rows)
    assert not archive.is_large(tmp_path)
    monkeypatch.setattr(archive, "IN_MEMORY_ROWS", rows - 1)
    assert archive.is_large(tmp_path)
    refused = CliRunner().invoke(main, ["chaos", "report", str(tmp_path), "--elle", str(tmp_path / "elle.edn")])
    assert refused.exit_code == 2
    assert "a history that fits into memory" in refused.output
    few = histories.read(tmp_path / "history", only=("faults",))
    assert (few.faults, few.sends) == (story.history.faults, [])


def test_past_runs_are_served_with_their_pages(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    told(tmp_path / "one", clean())
    with serve.server(tmp_path, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        with urllib.request.urlopen(f"{base}/") as answer:
            index = answer.read().decode()
        assert "W4 under F1, F3, seed 7" in index
        with urllib.request.urlopen(f"{base}/one/report.html") as answer:
            assert b"Verdicts" in answer.read()
        server.shutdown()
        thread.join()


def test_moments_are_counted_in_the_history() -> None:
    counted = {moment.name: moment.times for moment in moments(clean().history)}
    assert counted[ROLLED_BACK] == 1
    assert counted[ANSWER_LOST] == 0


def test_jepsens_form_has_an_invocation_and_a_completion_for_each_call() -> None:
    lines = list(elle.lines(clean().history))
    assert [int(re.findall(r":index (\d+)", line)[0]) for line in lines] == list(range(len(lines)))
    kinds = [re.findall(r":type :(\w+), :process (\d+), :f :(\w+)", line)[0] for line in lines]
    assert sum(kind == "invoke" for kind, *_ in kinds) * 2 == len(kinds)
    assert "[[:send 0 [2 2]]]" in next(line for line in lines if ":type :ok" in line and "[2 2]" in line)
    assert sum(f == "txn" for _, _, f in kinds) == 4, "two committed transactions"
    assert all(line.count("{") == line.count("}") and line.count("[") == line.count("]") for line in lines)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium here")
def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    story = clean()
    invented(story)
    told(tmp_path, story)
    shown = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--dump-dom", (tmp_path / "report.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert shown.count("<svg") == 3
    assert "nobody ever sent it" in shown
    assert shown.count('class="badge') > 20
