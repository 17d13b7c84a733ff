import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from aircomp.common.artefact import write_json
from aircomp.errors import ArtefactError
from aircomp.report import figures
from aircomp.report.gather import sections_of
from aircomp.report.page import Figure, Section, Table, cell_text, render, write_figures, write_page
from aircomp.report.rows import series_of
from helpers.commands import call
from helpers.records import put_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" onload='x' $\\frac{ {{ 7 * 7 }} {% raw %}"
VOID = {"meta", "img", "br", "link", "path", "use", "rect", "circle", "image"}


class Elements(HTMLParser):
    """Every tag of a page with its attributes; complains about tags that do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


def put_simulate(directory: Path, uplink: str = "gamp", snr_db: float = 5.0, **settings: Any) -> Path:
    row = {
        "uplink": uplink,
        "snr_db": snr_db,
        "rounds": 2,
        "test_accuracy_last5": 0.5,
        "count_accuracy": 0.7,
        "seconds": 3.0,
    }
    metrics = [{"round": r, "test_accuracy": r / 4, "test_loss": 1 / r, "update_nmse": 0.1} for r in (1, 2)]
    return put_run(directory, "simulate", [row], {"uplink": uplink, "channel": {"snr_db": snr_db}} | settings, metrics)


def titles(section: Section) -> list[str]:
    return [figure.title for figure in section.figures]


def test_values_are_shown_to_three_digits_with_their_spread_and_a_dash_if_missing():
    assert [cell_text(v) for v in (0.93277, 0.9, 0.8999, 123.4, 999.7, 863168, 12.0, 1.5e-7, -3.25)] == [
        "0.933",
        "0.9",
        "0.900",
        "123",
        "1,000",
        "863,168",
        "12",
        "1.5e-07",
        "−3.25",
    ]
    assert cell_text(0.93277, 0.00947) == "0.933 ± 0.0095"
    assert {cell_text(v) for v in (None, "", [], float("nan"), float("inf"), 10**400)} == {"–"}
    assert [cell_text(v) for v in (True, ["a", "b"], {"a": 1})] == ["yes", "a, b", '{"a": 1}']
    assert len(cell_text("x" * 10**6)) == 300


def test_the_page_is_one_well_formed_accessible_file_that_loads_nothing(tmp_path):
    directories = [put_simulate(tmp_path / "a"), put_simulate(tmp_path / "b", "amp-da", 0.0)]
    text = write_page(tmp_path / "report.html", "Two runs", sections_of(directories, beside=tmp_path)).read_text()
    page = Elements(text)
    assert page.of("html")[0]["lang"] == "en"
    assert any(meta.get("name") == "viewport" for meta in page.of("meta"))
    assert len(page.of("table")) == len(page.of("caption")) == 1
    assert all(th["scope"] in ("row", "col") for th in page.of("th"))
    drawings = [div for div in page.of("div") if div.get("role") == "img"]
    assert len(drawings) == len(page.of("svg")) == 4
    assert all(div["aria-label"] for div in drawings)
    assert [tag for tag, _ in page.found if re.fullmatch(r"h\d", tag)] == ["h1", "h2"]
    assert set(re.findall(r"https?://[^\"']*", text)) == {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert len(page.of("script")) == len(page.of("style")) == 1
    assert not any("src" in attributes for _, attributes in page.found)


def test_links_lead_to_the_raw_data_from_where_the_page_is(tmp_path):
    run = put_simulate(tmp_path / "runs" / "a b")
    page = write_page(tmp_path / "pages" / "report.html", "t", sections_of([run], beside=tmp_path / "pages"))
    links = [a["href"] for a in Elements(page.read_text()).of("a")]
    assert links == ["../runs/a%20b/result.json", "../runs/a%20b/metrics.jsonl"]


def test_whatever_a_file_says_is_inert(tmp_path):
    row = {"uplink": HOSTILE, HOSTILE: HOSTILE, "snr_db": HOSTILE, "test_accuracy": 0.5, "lone": "\ud800"}
    directories = []
    for command in ("simulate", "demo", "evaluate", "pretrain", "cost", HOSTILE):
        rows = [
            row | {"decoder": HOSTILE, "contender": HOSTILE, "slots_per_second": 3, "snr_db": s}
            for s in (0, 1, HOSTILE)
        ]
        directory = tmp_path / f"{len(directories)} {HOSTILE.replace('/', '')}"
        put_run(directory, command, [], {HOSTILE: HOSTILE, "fragments": HOSTILE})
        result = json.loads((directory / "result.json").read_text()) | {"rows": rows, "version": HOSTILE}
        (directory / "result.json").write_text(json.dumps(result))
        directories.append(directory)
    link = Section(HOSTILE, links={HOSTILE: "javascript:alert(1)", "host": "//host/x"})
    text = write_page(tmp_path / "r.html", HOSTILE, [*sections_of(directories), link], lead=HOSTILE).read_text()
    page = Elements(text)
    assert len(page.of("script")) == 1
    assert page.of("img") == []
    assert not any(name.startswith("on") for _, attributes in page.found for name in attributes)
    assert all(re.match(r"#|\./|\.\./", a["href"] or "") for a in page.of("a"))
    assert all(":" not in (a["href"] or "") for a in page.of("a"))
    assert "{{ 7 * 7 }} {% raw %}" in text, "names are no templates"


def test_commands_are_safe_to_paste(tmp_path):
    run = put_run(
        tmp_path / "ev", "evaluate", [], {"fragments": "x; rm -rf ~", "snr_db": [0.0, 5.0], "decoder": ["gamp"]}
    )
    (section,) = sections_of([run])
    assert section.commands == ("aircomp evaluate --fragments 'x; rm -rf ~' --decoder gamp --snr-db 0 5",)


def test_runs_are_compared_by_what_differs(tmp_path):
    paths = [
        put_simulate(tmp_path / "x" / "run", "gamp", 0.0, seed=0, devices={"total": 40}, workers=1),
        put_simulate(tmp_path / "y" / "run", "gamp", 5.0, seed=1, devices={"total": 40}, workers=2),
        put_simulate(tmp_path / "ideal", "ideal", 5.0, seed=0, devices={"total": 40}),
    ]
    (section,) = sections_of([*paths, paths[0]])
    (table,) = section.tables
    assert [row["run"] for row in table.rows] == ["x/run", "y/run", "ideal"]
    assert "seed" in table.columns
    assert not {"workers", "devices.total"} & set(table.columns)
    assert table.rows[2]["snr_db"] is None  # no noise, whatever its settings say
    assert titles(section)[:2] == ["Test accuracy against SNR", "Test accuracy by round"]
    assert "x/run (gamp, 0 dB)" in section.figures[1].svg


def test_runs_of_unequal_length_are_no_line(tmp_path):
    paths = []
    for snr_db, rounds in ((0.0, 25), (5.0, 25), (10.0, 12)):
        row = {"uplink": "gamp", "snr_db": snr_db, "rounds": rounds, "test_accuracy_last5": 0.5}
        paths.append(put_run(tmp_path / f"{rounds}-{snr_db:g}", "simulate", [row], {"rounds": rounds}))
    (section,) = sections_of(paths)
    lines = {label: len(points) for label, points in section.figures[0].points}
    assert lines == {"gamp, rounds 25": 2, "gamp, rounds 12": 1}
    (section,) = sections_of(paths[:2])
    assert dict(section.figures[0].points).keys() == {"gamp"}


def test_several_seeds_at_one_place_become_a_mean_and_its_spread():
    rows = [{"uplink": "gamp", "snr_db": 5.0, "test_accuracy_last5": a} for a in (0.4, 0.6)]
    rows += [{"uplink": "gamp", "snr_db": 9.0, "test_accuracy_last5": 0.9, "test_accuracy_last5_std": 0.03}]
    (points,) = series_of(rows, ["uplink"], "snr_db", "test_accuracy_last5").values()
    assert points == [(5.0, 0.5, pytest.approx(0.02**0.5)), (9.0, 0.9, 0.03)]  # sample deviation of 0.4 and 0.6


@pytest.mark.seconds
def test_every_kind_of_result_has_its_section(tmp_path):
    at = [
        {"snr_db": s, "snr_reference": "slot", "count_accuracy": s / 10, "update_nmse_hard": 1 / (1 + s)}
        for s in (0.0, 5.0)
    ]
    epochs = [{"epoch": e, "train_loss": 1 / e, "validation_loss": 2 / e} for e in (1, 2)]
    directories = [
        put_run(tmp_path / "other", "reproduce k-error", [r | {"uplink": "gamp"} for r in at]),
        put_run(tmp_path / "cost", "cost", [{"uplink": "gamp", "air_seconds": 0.4, "side_information": "none"}]),
        put_run(tmp_path / "layer", "pretrain", at, metrics=epochs),
        put_run(tmp_path / "ev", "evaluate", [r | {"decoder": d} for d in ("gamp", "amp-da") for r in at]),
        put_simulate(tmp_path / "fragments", "perfect"),
    ]
    write_json(tmp_path / "fragments" / "fragments.json", {})
    sections = {section.title: section for section in sections_of(directories)}
    order = ["Decoders", "Pretraining", "Collected fragments", "Cost", "reproduce k-error"]
    assert list(sections) == order
    by_snr = ["Count accuracy against SNR", "Update NMSE, integer counts against SNR"]
    assert titles(sections["Decoders"]) == titles(sections["reproduce k-error"]) == by_snr
    assert titles(sections["Pretraining"]) == ["Loss by epoch", *by_snr]
    assert titles(sections["Cost"]) == ["Air time"]


def informed(decoder: str, codebook: str, snr_db: float, accuracy: float, bits: float) -> dict[str, Any]:
    return {
        "decoder": decoder,
        "codebook": codebook,
        "snr_db": snr_db,
        "snr_reference": "slot",
        "count_accuracy": accuracy,
        "posterior_count_accuracy": accuracy + 0.01,
        "below_posterior": 0.01,
        "entropy_bits": 33.0,
        "signal_bits": bits,
        "capacity_bits": 32.0 + 10 * snr_db,
        "count_accuracy_limit": min(1.0, bits / 25),
    }


def test_decoders_stand_beside_the_posterior_and_the_information_of_a_slot(tmp_path):
    at = [(0.0, 0.5, 22.0), (5.0, 0.9, 45.0)]
    rows = [informed(d, "two-bases", *each) for d in ("gamp", "omp") for each in at]
    rows += [informed("gamp-net", "layer", snr_db, accuracy, bits + 3) for snr_db, accuracy, bits in at]
    (section,) = sections_of([put_run(tmp_path / "ev", "evaluate", rows)])
    assert titles(section) == ["Count accuracy against SNR", "Information of a slot"]
    accuracy, information = section.figures
    for label in ("gamp", "omp", "posterior, two-bases", "posterior, layer", "limit, two-bases", "limit, layer"):
        assert f">{label}<" in accuracy.svg
    assert "limit, two-bases 0.88 at 0 to 1 at 5" in accuracy.alt
    for label in ("capacity", "signals of two-bases", "signals of layer", "the counts hold"):
        assert f">{label}<" in information.svg
    assert "capacity 32 at 0 to 82 at 5" in information.alt
    assert information.alt.endswith("the counts hold 33.")
    decoders, bits = section.tables
    assert "below_posterior" in decoders.columns
    assert "the true number of devices" in decoders.note
    assert [(row["codebook"], row["snr_db"]) for row in bits.rows] == [
        ("two-bases", 0.0), ("two-bases", 5.0), ("layer", 0.0), ("layer", 5.0)
    ]  # fmt: skip


def test_a_table_of_very_many_rows_is_cut_and_says_so():
    table = Table("many", {"n": "n"}, [{"n": n} for n in range(2500)])
    text = render("t", [Section("s", tables=(table,))])
    assert text.count("<tr>") == 1001
    assert "Only the first 1,000 of 2,500 rows" in text


def test_figures_are_the_same_bits_each_time_with_identifiers_of_their_own():
    def draw(top: float) -> str:
        series = {
            "a <b> $x$": [(0, 1, 0.1), (1, top, 0.2)],
            "_hidden": [(0, 2)],
            "漢字": [(0, float("nan")), (1, 1e300)],
        }
        return figures.lines(series, x="round", y="loss", title="t", alt="a", references={"level": 1.5}).svg

    one, other = draw(3.0), draw(4.0)
    assert one == draw(3.0)
    ids = [set(re.findall(r'id="([^"]+)"', svg)) for svg in (one, other)]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', one)) <= ids[0]
    words = re.findall(r"<text[^>]*>([^<]*)</text>", one)
    assert {"a &lt;b&gt; $x$", " _hidden", "漢字", "level", "round", "loss"} <= set(words)
    assert "currentColor" in one
    assert figures.INK not in one
    assert not re.search(r"<style|<metadata|\d{4}-\d\d-\d\dT", one)


def test_up_to_eight_lines_have_a_colour_and_a_marker_of_their_own_and_forty_a_pair_of_them():
    series = {str(number): [(0, number), (1, number)] for number in range(8)}
    svg = figures.lines(series, x="x", y="y", title="", alt="").svg
    drawn = [
        re.search(rf'-series{number}">.*?stroke: (#\w+).*?<path id="[^"]*" d="([^"]*)"', svg, re.S) for number in series
    ]
    assert all(len({found and found[part] for found in drawn}) == 8 for part in (1, 2))
    looks = {(figures.PALETTE[n % len(figures.PALETTE)], figures.MARKERS[n % len(figures.MARKERS)]) for n in range(40)}
    assert len(looks) == 40


def test_a_logarithmic_figure_has_plain_numbers_on_it_and_leaves_zero_out():
    drawing = figures.lines({"a": [(0, 0.0), (1, 1e-5), (2, 1.0)]}, x="x", y="y", title="", alt="", log=True)
    words = re.findall(r"<text[^>]*>([^<]*)</text>", drawing.svg)
    assert {"10⁻⁵", "0.01", "1"} <= set(words)
    assert not any("mathdefault" in word for word in words)


def ticks(points: list[tuple[float, float]], **axis: Any) -> tuple[list[str], list[str]]:
    words = re.findall(r">([^<>]+)</text>", figures.lines({"a": points}, x="x", y="y", title="", alt="", **axis).svg)
    return words[: words.index("x")], words[words.index("x") + 1 : words.index("y")]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.12, 0.41), ["0.15", "0.20", "0.30", "0.40"]),
        ((0.55, 1.0), ["0.6", "0.8", "1.0"]),
        ((1.99, 2.27), ["2.00", "2.05", "2.10", "2.15", "2.20", "2.25"]),
        ((1200.0, 4000.0), ["1,500", "2,000", "3,000", "4,000"]),
        ((0.09, 2.3), ["0.1", "0.2", "0.5", "1", "2"]),
    ],
)
def test_ticks_of_a_logarithmic_axis_have_equal_decimals_within_a_decade(ends, expected):
    assert ticks([(0, ends[0]), (1, ends[1])], log=True)[1] == expected


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_rounds_are_whole_numbers_on_an_axis_and_ratios_need_not_be(rounds):
    whole = [str(number) for number in range(1, rounds + 1)]
    assert ticks([(number, 0.5) for number in range(1, rounds + 1)])[0] == whole
    assert ticks([(float(number), 0.5) for number in range(1, rounds + 1)])[0] != whole


def test_a_name_in_a_plane_keeps_clear_of_other_points():
    near = {"a": [(0.0, 0.0, "first")], "b": [(0.1, 0.1, "second"), (-1.0, -1.0, "third")]}
    svg = figures.scatter(near, x="x", y="y", title="", alt="").svg
    across, down = (
        {name: float(place) for place, name in re.findall(rf'<text[^>]* {axis}="([\d.]+)"[^>]*>(\w+)<', svg)}
        for axis in ("x", "y")
    )
    assert across["second"] - across["first"] > 20  # in points; on the same side of both they are 11 apart
    assert down["first"] > down["second"]


def test_bars_say_their_values_and_heat_maps_their_cells():
    drawing = figures.bars(
        {"us": [("a", 1234, 100), ("b", 2)], "plain": [("a", 7)]}, x="slots/s", y="", title="", alt=""
    )
    assert {"1,234", "2", "7", "us", "plain", "a", "b", "slots/s"} <= set(re.findall(r">([^<>]+)</text>", drawing.svg))
    names = {"rows": ["r1", "r2"], "columns": ["c1", "c2"], "x": "x", "y": "y", "unit": "share"}
    drawing = figures.heatmap([[0.25, 2], [3, float("nan")]], **names, title="", alt="")
    words = re.findall(r">([^<>]+)</text>", drawing.svg)
    assert {"0.25", "3", "r1", "c2", "share"} <= set(words)
    assert "–" not in words


def test_one_run_gets_its_page_beside_it_and_only_once(tmp_path, capsys):
    run = put_run(tmp_path / "run", "cost", [{"uplink": "gamp"}])
    assert call("report", run) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert call("report", run) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert call("report", run, "--overwrite") == 0
    assert sorted(p.name for p in run.iterdir()) == [".aircomp.json", "report.html", "result.json"]


@pytest.mark.parametrize(("command", "code"), [("simulate", 0), ("collect", 0), ("pretrain", 0), ("explain", 2)])
def test_a_page_older_than_the_result_of_a_continued_run_is_replaced(command, code, tmp_path):
    run = put_run(tmp_path / "run", command, [{"snr_db": 5.0, "rounds": 4}])
    assert call("report", run) == 0
    assert call("report", run) == 2
    put_run(run, command, [{"snr_db": 5.0, "rounds": 25}])
    os.utime(run / "report.html", (0, 0))
    assert call("report", run) == code  # explain writes its own page before its result
    assert call("report", run) == 2


def test_several_runs_get_a_new_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        put_run(tmp_path / name, "cost", [{"uplink": "gamp"}])
    for _ in range(2):
        assert call("report", "a", "b") == 0
    pages = [tmp_path / "runs" / name / "report.html" for name in ("report", "report-2")]
    assert "../../a/result.json" in pages[1].read_text()
    assert pages[0].read_text() == pages[1].read_text()


def _damage(directory: Path) -> None:
    (directory / "result.json").write_text('{"command": ')


def _replace(directory: Path) -> None:
    (directory / "result.json").write_text('{"rows": [1, 2]}')


def _nest(directory: Path) -> None:
    (directory / "result.json").write_text("[" * 10**5 + "]" * 10**5)


def _nest_config(directory: Path) -> None:
    put_run(directory, "simulate", [], json.loads('{"a":' * 50 + "1" + "}" * 50))


def _remove(directory: Path) -> None:
    (directory / "result.json").unlink()


def _tear(directory: Path) -> None:
    (directory / "metrics.jsonl").write_text('{"round": 1}\n{"rou\n{"round": 3}\n')


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (_damage, r"result\.json is not readable JSON"),
        (_replace, r"result\.json is not a result"),
        (_nest, r"result\.json is nested too deeply"),
        (_nest_config, r"result\.json is nested too deeply"),
        (_remove, r"there is no result\.json in"),
        (_tear, r"line 2 of .*metrics\.jsonl is not JSON"),
    ],
)
def test_a_run_that_cannot_be_read_is_told_in_a_sentence(break_it, sentence, tmp_path, capsys):
    break_it(put_simulate(tmp_path / "run"))
    assert call("report", tmp_path / "run") == 2
    message = capsys.readouterr().err
    assert re.search(sentence, message)
    assert message.count("\n") == 1
    assert not (tmp_path / "run" / "report.html").exists()


def test_directories_that_are_none_are_told_apart(tmp_path, capsys):
    for args, sentence in (((), "no directory was given"), ((tmp_path / "no",), "does not exist")):
        assert call("report", *args) == 2
        assert sentence in capsys.readouterr().err
    file = put_simulate(tmp_path / "run") / "result.json"
    with pytest.raises(ArtefactError, match="is a file"):
        sections_of([file])


def test_a_file_too_large_for_a_result_is_not_read(tmp_path):
    run = put_simulate(tmp_path / "run")
    os.truncate(run / "result.json", 2**27)
    with pytest.raises(ArtefactError, match="larger than 64 MB"):
        sections_of([run])


def test_the_half_written_last_line_of_a_run_is_left_out(tmp_path):
    run = put_simulate(tmp_path / "run")
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"round": 3, "test_acc')
    (section,) = sections_of([run])
    assert "Test accuracy by round" in titles(section)


def test_figures_are_files_of_their_own(tmp_path):
    figure = Figure("Error, by way <1>", '<svg viewBox="0 0 1 1"><path d="M0 0"/></svg>', "Two & more.")
    assert write_figures(tmp_path, [figure]) == {"error-by-way-1.svg": "error-by-way-1.svg"}
    root = ElementTree.fromstring((tmp_path / "error-by-way-1.svg").read_text())
    assert [child.tag for child in root] == ["title", "style", "path"]
    assert root[0].text == "Two & more."
    assert "background:#fff" in (root[1].text or "")
