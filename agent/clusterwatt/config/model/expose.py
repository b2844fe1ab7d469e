"""Section `expose`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clusterwatt.config.model.section import Section


class DcgmPage(Section, frozen=True):
    """The page /dcgm/metrics, with names, labels and units of dcgm-exporter; made only for who asks for it.

    `counters_file`: which counters, as a csv file in dcgm-exporter's format; empty: its default list.
    `skip_unknown`: leave out counters that are not known here, with a warning, where otherwise the file is
    refused.
    `interval_seconds`: what rates and counted events refer to; dcgm-exporter's collect interval.
    `hostname_lower_case`: the label `hostname`, as in dcgm-exporter 4.8.3 and later, in place of `Hostname`.
    """

    enabled: bool = True
    counters_file: str = ""
    skip_unknown: bool = False
    interval_seconds: Annotated[float, Meta(ge=1, le=3_600)] = 30.0
    hostname_lower_case: bool = False


class Expose(Section, frozen=True):
    """Pages in the words of other programs.

    `node_exporter_names`: the page /node/metrics, with names and labels of node_exporter; what it needs
    beyond our own readings is read only while it is on.
    """

    dcgm: DcgmPage = DcgmPage()
    node_exporter_names: bool = False
