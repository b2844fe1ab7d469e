"""A report as a table, JSON, CSV, Markdown or HTML. Names of jobs are other people's text everywhere."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from clusterwatt.config.problems import escaped
from clusterwatt.report import period
from clusterwatt.report.columns import Cell, Column, columns
from clusterwatt.report.lines import REST, TOTAL, Line, Report

MAX_TEXT = 40  # characters of a text in a table
FORMS: Mapping[str, Callable[[float], str]] = {
    "time": period.shown,
    "count": "{:.0f}".format,
    "hours": "{:.2f}".format,
    "percent": lambda share: f"{share * 100:.1f}",
    "kwh": "{:.3f}".format,
    "kg": "{:.3f}".format,
    "money": "{:.2f}".format,
}
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
    shown = [column for column in columns(report) if column.head]
    rows = [[column.head for column in shown]]
    rows += [[_plain(column, line) for column in shown] for line in _lines(report)]
    kept = [index for index in range(len(shown)) if any(row[index] for row in rows[1:])]
    widths = {index: max(len(row[index]) for row in rows) for index in kept}
    text = [heading(report)] if report.from_s is not None else []
    aligned = {index: str.ljust if shown[index].kind == "text" else str.rjust for index in kept}
    text.extend(
        "  ".join(aligned[index](row[index], widths[index]) for index in kept).rstrip() for row in rows
    )
    return "\n".join(text) + "\n"


def as_json(report: Report) -> str:
    """One object; amounts are not rounded, what is not known is null."""
    fields = columns(report)
    document = {
        "by": report.by,
        "source": report.source,
        "from": None if report.from_s is None else period.with_zone(report.from_s),
        "to": None if report.to_s is None else period.with_zone(report.to_s),
        "currencies": list(report.currencies),
        "lines": [_record(fields, line) for line in report.lines],
        "unattributed": None if report.rest is None else _record(fields, report.rest),
        "total": _record(fields, report.total),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def as_csv(report: Report) -> str:
    """RFC 4180, with a header; amounts are not rounded, what is not known is empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    fields = columns(report)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([column.name for column in fields])
    for line in _lines(report):
        writer.writerow([_harmless(_exact(column, line)) for column in fields])
    return text.getvalue()


def markdown(report: Report) -> str:
    """A table for wikis and pull requests."""
    shown = [column for column in columns(report) if column.head]
    text = [f"**{in_markdown(heading(report))}**", ""] if report.from_s is not None else []
    text.append("| " + " | ".join(column.head for column in shown) + " |")
    text.append("|" + "|".join("---" if column.kind == "text" else "---:" for column in shown) + "|")
    text.extend(
        "| " + " | ".join(in_markdown(_plain(column, line)) for column in shown) + " |"
        for line in _lines(report)
    )
    return "\n".join(text) + "\n"


STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem;color:#1a1a1a;background:#fff}"
    "table{border-collapse:collapse}th,td{padding:.3rem .8rem;border-bottom:1px solid #ddd;text-align:right;"
    "font-variant-numeric:tabular-nums}th.text,td.text{text-align:left}tr:last-child td{font-weight:600}"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def as_html(report: Report) -> str:
    """One page that needs nothing else and runs nothing."""
    shown = [column for column in columns(report) if column.head]
    title = html.escape(heading(report))
    head = "".join(f'<th scope="col"{_css(column)}>{html.escape(column.head)}</th>' for column in shown)
    body = "\n".join(f"<tr>{_cells(shown, line)}</tr>" for line in _lines(report))
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


def _lines(report: Report) -> Iterator[Line]:
    if report.rest is None:
        yield from report.lines
    else:
        for line in report.lines:  # an account may bear the name of the rest
            named_alike = line.label in (REST, TOTAL)
            yield msgspec.structs.replace(line, label=f'"{line.label}"') if named_alike else line
        yield report.rest
        yield report.total


def _record(fields: Sequence[Column], line: Line) -> dict[str, Cell]:
    return {column.name: _exact(column, line) for column in fields}


def _exact(column: Column, line: Line) -> Cell:
    """A cell for machines: not rounded; times as ISO 8601 with their offset."""
    cell = column.of(line)
    return period.with_zone(cell) if column.kind == "time" and isinstance(cell, float) else cell


def _plain(column: Column, line: Line) -> str:
    """A cell for people: rounded, on one line."""
    cell = column.of(line)
    if cell is None:
        return ""
    if isinstance(cell, str):
        text = escaped(cell)
        return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
    return FORMS[column.kind](cell)


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


def _cells(shown: Sequence[Column], line: Line) -> str:
    return "".join(f"<td{_css(column)}>{html.escape(_plain(column, line))}</td>" for column in shown)


def _css(column: Column) -> str:
    return ' class="text"' if column.kind == "text" else ""
