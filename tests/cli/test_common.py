"""What the commands share."""

from aircomp.cli import common


def test_a_log_gets_a_line_now_and_then_instead_of_a_bar(capsys, monkeypatch):
    with common.progress_bar("job", 3) as (progress, task):
        progress.update(task, advance=1)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(common, "SECONDS_BETWEEN_LINES", 0.0)
        progress.update(task, advance=1, note="halfway")
    assert capsys.readouterr().err == "job 2/3 halfway\n"
