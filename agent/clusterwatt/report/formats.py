"""A report as a table, JSON, CSV, Markdown or HTML. Names of jobs are other people's text everywhere."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from clusterwatt.config.problems import escaped
from clusterwatt.report import period
from clusterwatt.report.columns import Cell, Column, Kind, columns
from clusterwatt.report.lines import Line, Report

MAX_TEXT = 40  # characters of a text in a table
FOR_PEOPLE = ("table", "markdown", "html")
FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\\t",
    "\\r",
)  # how a formula begins in spreadsheets; tab and return are escaped
NOTE = "Books are kept by full hours (UTC)."


def table(report: Report) -> str:
    """Aligned columns for a terminal."""
    padded = []
    for column, cells in _shown(report):
        if any(cells):
            width = max(len(column.head), *map(len, cells))
            pad = str.ljust if column.kind == "text" else str.rjust
            padded.append([pad(cell, width) for cell in (column.head, *cells)])
    text = [heading(report)] if report.from_s is not None else []
    text.extend("  ".join(row).rstrip() for row in zip(*padded, strict=True))
    return "\n".join(text) + "\n"


def as_json(report: Report) -> str:
    """One object; amounts are not rounded, what is not known is null."""
    fields = columns(report)
    names = [column.name for column in fields]
    lines = [*report.every, report.total]
    cells = (_exact(column, lines) for column in fields)
    records = [dict(zip(names, row)) for row in zip(*cells)]  # noqa: B905 - of equal length, and many
    total = records.pop()
    rest, others = (None if line is None else records.pop() for line in (report.rest, report.others))
    document = {
        "by": report.by,
        "source": report.source,
        "from": None if report.from_s is None else period.with_zone(report.from_s),
        "to": None if report.to_s is None else period.with_zone(report.to_s),
        "currencies": list(report.currencies),
        "lines": records,
        "others": others,
        "unattributed": rest,
        "total": total,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def as_csv(report: Report) -> str:
    """RFC 4180, with a header; amounts are not rounded, what is not known is empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    fields, lines = columns(report), _lines(report)
    cells = (map(_harmless, _exact(column, lines)) for column in fields)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([column.name for column in fields])
    writer.writerows(zip(*cells))  # noqa: B905 - as above
    return text.getvalue()


def markdown(report: Report) -> str:
    """A table for wikis and pull requests."""
    shown = _shown(report)
    text = [f"**{in_markdown(heading(report))}**", ""] if report.from_s is not None else []
    text.append("| " + " | ".join(column.head for column, _ in shown) + " |")
    text.append("|" + "|".join("---" if column.kind == "text" else "---:" for column, _ in shown) + "|")
    cells = ([in_markdown(cell) for cell in cells] for _, cells in shown)
    text.extend("| " + " | ".join(row) + " |" for row in zip(*cells, strict=True))
    return "\n".join(text) + "\n"


STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem;color:#1a1a1a;background:#fff}"
    "table{border-collapse:collapse}th,td{padding:.3rem .8rem;border-bottom:1px solid #ddd;text-align:right;"
    "font-variant-numeric:tabular-nums}th.text,td.text{text-align:left}tr:last-child td{font-weight:600}"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def as_html(report: Report) -> str:
    """One page that needs nothing else and runs nothing."""
    shown = _shown(report)
    title = html.escape(heading(report))
    head = "".join(f'<th scope="col"{_css(column)}>{html.escape(column.head)}</th>' for column, _ in shown)
    cells = ([f"<td{_css(column)}>{html.escape(cell)}</td>" for cell in cells] for column, cells in shown)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"
        f"<p>{html.escape(report.source)}. {NOTE}</p>\n</body>\n</html>\n"
    )


FORMATS: Mapping[str, Callable[[Report], str]] = {
    "table": table,
    "json": as_json,
    "csv": as_csv,
    "markdown": markdown,
    "html": as_html,
}


def heading(report: Report) -> str:
    """Which period it is of."""
    if report.from_s is None or report.to_s is None:
        return "Jobs"
    return f"{period.shown(report.from_s)} to {period.shown(report.to_s)}, by {report.by}"


def _lines(report: Report) -> Sequence[Line]:
    if report.rest is None:
        return report.lines
    last = [*([] if report.others is None else [report.others]), report.rest, report.total]
    taken = {line.label for line in last}  # an account may bear the name of one of these
    lines = [
        msgspec.structs.replace(line, label=f'"{line.label}"') if line.label in taken else line
        for line in report.lines
    ]
    return [*lines, *last]


def _shown(report: Report) -> list[tuple[Column, list[str]]]:
    """The columns for people, each with its cells: rounded, on one line."""
    lines = _lines(report)
    shown = []
    for column in columns(report):
        if column.head:
            form = FORMS[column.kind]
            cells = ["" if cell is None else form(cell) for cell in map(column.of, lines)]
            shown.append((column, cells))
    return shown


def _exact(column: Column, lines: Iterable[Line]) -> Iterable[Cell]:
    """Cells for machines: not rounded; times as ISO 8601 with their offset."""
    cells = map(column.of, lines)
    if column.kind == "time":
        return (period.with_zone(cell) if isinstance(cell, float) else cell for cell in cells)
    return cells


def _short(text: str) -> str:
    text = escaped(text)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."


FORMS: Mapping[Kind, Callable[[Any], str]] = {  # kinds of cells as people read them
    "text": _short,
    "time": period.shown,
    "count": "{:.0f}".format,
    "hours": "{:.2f}".format,
    "percent": lambda share: f"{share * 100:.1f}",
    "kwh": "{:.3f}".format,
    "kg": "{:.3f}".format,
    "money": "{:.2f}".format,
}


def _harmless(cell: Cell) -> Cell:
    """A cell that is on one line, and no formula."""
    if not isinstance(cell, str):
        return cell
    text = escaped(cell)
    return f"'{text}" if text.startswith(FORMULA) else text


def in_markdown(text: str) -> str:
    """A text that Markdown shows as it is, on one line."""
    text = escaped(text)
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#&~" else character for character in text)


def _css(column: Column) -> str:
    return ' class="text"' if column.kind == "text" else ""
