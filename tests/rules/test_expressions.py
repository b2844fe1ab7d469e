"""The numbers of the rules: where each of them stands, and that an override reaches just that place."""

from __future__ import annotations

import re

import pytest

from clusterwatt.rules import expression, overrides, render, shipped
from clusterwatt.rules.expression import MarkError
from clusterwatt.rules.overrides import Change, Overrides
from clusterwatt.rules.shipped import Rule, RuleFile
from tests.rules.known import alerts

IDLE = "avg_over_time(gpu_job:clusterwatt_idle:ratio_rate5m"
TOKENS = "clusterwatt_training_tokens_per_second"
# Every number that a site may set, as the overview of the rules has them: what is written around it, and in
# how many places. Space and comments are taken away.
PLACES: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("GpuAllocatedIdle", "warning", "idle_ratio"): (">{}andgpu_job:",),
    ("GpuAllocatedIdle", "warning", "window"): (
        IDLE + '{{kind="batch"}}[{}])>',
        'count_over_time(gpu_job:clusterwatt_idle:ratio_rate5m{{kind="batch"}}[{}])',
    ),
    ("GpuAllocatedIdle", "warning", "guard"): (">={}and",),
    ("GpuAllocatedIdle", "warning", "age_seconds"): ("age:seconds>{}",),
    ("GpuAllocatedIdleLong", "critical", "idle_ratio"): (">{}andgpu_job:",),
    ("GpuAllocatedIdleLong", "critical", "window"): (
        IDLE + '{{kind!="service"}}[{}])>',
        'count_over_time(gpu_job:clusterwatt_idle:ratio_rate5m{{kind!="service"}}[{}])',
    ),
    ("GpuAllocatedIdleLong", "critical", "guard"): (">={}unless",),
    ("JobLowGpuUtilization", "warning", "activity_ratio"): ("<{}and",),
    ("JobLowGpuUtilization", "warning", "floor_ratio"): (">={}unless",),
    ("JobLowGpuUtilization", "warning", "window"): (
        'avg_over_time(job:clusterwatt_activity_in_training:ratio_rate5m{{kind="batch"}}[{}])',
        'count_over_time(job:clusterwatt_activity_in_training:ratio_rate5m{{kind="batch"}}[{}])',
        'max_over_time(job:clusterwatt_activity_in_training:ratio_rate5m{{kind="batch"}}[{}])',
    ),
    ("JobLowGpuUtilization", "warning", "guard"): (">={}andmax",),
    ("JobPartlyIdle", "warning", "idle_ratio"): (">{}andgpu_job:",),
    ("JobPartlyIdle", "warning", "window"): (
        IDLE + '{{kind="batch"}}[{}])>',
        'count_over_time(gpu_job:clusterwatt_idle:ratio_rate5m{{kind="batch"}}[{}])',
        IDLE + '{{kind="batch"}}[{}])))<0.7',
    ),
    ("JobPartlyIdle", "warning", "guard"): (">={}))and",),
    ("JobPartlyIdle", "warning", "others_idle_ratio"): ("))<{}and",),
    ("JobPartlyIdle", "warning", "age_seconds"): ("age:seconds>{}",),
    ("GpuBusyWithoutAllocation", "warning", "busy_ratio"): (")>{}unless",),
    ("GpuBusyWithoutAllocation", "warning", "window"): ("busy_seconds_total[{}]", "gpu_allocated[{}]"),
    ("TrainingStalled", "critical", "window"): ("training_step[{}])", "training_step[{}:1m]"),
    ("TrainingStalled", "critical", "minutes"): (">={}and",),
    ("TrainingStalled", "critical", "power_ratio"): ("<{}and",),
    ("TrainingHungInCollective", "critical", "busy_ratio"): ('"batch"}})>{}and',),
    ("TrainingHungInCollective", "critical", "power_ratio"): ("<{}and",),
    ("TrainingHungInCollective", "critical", "window"): ("ratio_rate5m[{}]",),
    ("TrainingHungInCollective", "critical", "gpus"): ("gpus:count>={}and",),
    ("TrainingHungInCollective", "critical", "age_seconds"): ("age:seconds>{}",),
    ("TrainingMetricsStale", "warning", "window"): ("training_step[{}])", "training_step[{}:1m]"),
    ("TrainingMetricsStale", "warning", "minutes"): (")>={}andon(job_id)job:clusterwatt_power",),
    ("TrainingMetricsStale", "warning", "power_ratio"): ("rate5m>={}and",),
    ("TrainingLossNonFinite", "critical", "window"): ("[{}])>0",),
    ("TrainingLossDiverging", "warning", "factor"): (">{}*(",),
    ("TrainingLossDiverging", "warning", "floor"): (">{})and",),
    ("TrainingLossDiverging", "warning", "window"): ('"train"}}[{}])>1.3',),
    ("TrainingLossDiverging", "warning", "history"): ("[{}]offset15m", "[{}:1m]offset15m"),
    ("TrainingLossDiverging", "warning", "gap"): ("[6h]offset{})", "[6h:1m]offset{})"),
    ("TrainingLossDiverging", "warning", "minutes"): (">={}unless",),
    ("TrainingThroughputDrop", "warning", "window"): (TOKENS + "[{}])<",),
    ("TrainingThroughputDrop", "warning", "factor"): ("<{}*",),
    ("TrainingThroughputDrop", "warning", "history"): ("[{}]offset30m", "[{}:1m]offset30m"),
    ("TrainingThroughputDrop", "warning", "gap"): ("[6h]offset{})", "[6h:1m]offset{})"),
    ("TrainingThroughputDrop", "warning", "minutes"): (">={}and",),
    ("TrainingThroughputDrop", "warning", "phase_window"): ("training_expected:bool[{}]",),
    ("TrainingThroughputDrop", "warning", "guard"): (">={}unless",),
    ("JobStragglerGpu", "warning", "clock_ratio"): ("group_left(){}*avg_over_time(job:clusterwatt_sm",),
    ("JobStragglerGpu", "warning", "activity_ratio"): ("group_left(){}*avg_over_time(job:clusterwatt_act",),
    ("JobStragglerGpu", "warning", "busy_ratio"): (">{}andon(job_id)job:clusterwatt_gpus",),
    ("JobStragglerGpu", "warning", "window"): (
        "(avg_over_time(gpu_job:clusterwatt_sm_clock:hertz[{}])<",
        "avg_over_time(job:clusterwatt_sm_clock_of_median_gpu:hertz[{}])",
        "(avg_over_time(gpu_job:clusterwatt_activity:ratio_rate5m[{}])<",
        "avg_over_time(job:clusterwatt_activity_of_median_gpu:ratio_rate5m[{}])",
        "avg_over_time(job:clusterwatt_busy_of_median_gpu:ratio_rate5m[{}])",
    ),
    ("JobStragglerGpu", "warning", "gpus"): ("gpus:count>={}and",),
    ("JobStragglerGpu", "warning", "phase_window"): ("training_expected:bool[{}]",),
    ("JobStragglerGpu", "warning", "guard"): (">={}unless",),
    ("SilentCorruptionSuspected", "warning", "window"): ("nonfinite_total[{}]",),
    ("SilentCorruptionSuspected", "warning", "norm_window"): ("gradient_norm[{}])>10",),
    ("SilentCorruptionSuspected", "warning", "history"): ("gradient_norm[{}]offset10m",),
    ("SilentCorruptionSuspected", "warning", "gap"): ("[6h]offset{})",),
    ("SilentCorruptionSuspected", "warning", "memory"): ('"volatile"}}[{}]',),
    ("SilentCorruptionSuspected", "warning", "age_seconds"): ('"memory"}}<{}',),
    ("SilentCorruptionSuspected", "warning", "norm_factor"): (">{}*quantile_over_time",),
    ("SilentCorruptionSuspected", "warning", "errors_per_day"): ("[1d])))>{}or",),
    ("GpuXidCritical", "critical", "age_seconds"): ("<{}",),
    ("GpuXidWarning", "warning", "age_seconds"): ("<{}",),
    ("GpuXidAcrossJobs", "warning", "jobs"): (">={}",),
    ("GpuMissing", "critical", "memory"): ("gpus_visible[{}]",),
    ("GpuUncorrectableEcc", "critical", "errors"): (">{}",),
    ("GpuRowRemapPending", "warning", "banks"): ('"none"}}>{}',),
    ("GpuCorrectedEccSurge", "warning", "sram_errors"): (">{}or",),
    ("GpuCorrectedEccSurge", "warning", "dram_errors"): (">{}",),
    ("GpuCorrectedEccSurge", "warning", "window"): ('"sram"}}[{}]', '"dram"}}[{}]'),
    ("GpuThermalSlowdown", "warning", "window"): ("[{}]",),
    ("GpuThermalSlowdown", "warning", "share_ratio"): (">{}",),
    ("GpuThermalSlowdown", "critical", "window"): ("[{}]",),
    ("GpuThermalSlowdown", "critical", "share_ratio"): (">{}",),
    ("GpuNearSlowdownTemperature", "warning", "margin_celsius"): ("<{}or",),
    ("GpuNearSlowdownTemperature", "warning", "memory_celsius"): (">={}",),
    ("GpuPowerBrake", "warning", "window"): ("[{}]",),
    ("GpuPowerBrake", "warning", "share_ratio"): (">{}",),
    ("GpuClocksLowUnderLoad", "warning", "clock_ratio"): ("<{}*",),
    ("GpuClocksLowUnderLoad", "warning", "busy_ratio"): (")>{}unless",),
    ("GpuClocksLowUnderLoad", "warning", "throttle_ratio"): (")>{}unlesson(instance,uuid)gpu:",),
    ("GpuClocksLowUnderLoad", "warning", "window"): (
        '"sm"}}[{}]',
        "busy_seconds_total[{}]",
        'sw_power_cap"}}[{}]',
    ),
    ("NvlinkErrorsRising", "warning", "recoveries"): (">{}or",),
    ("NvlinkErrorsRising", "warning", "errors"): (">{}",),
    ("NvlinkErrorsRising", "warning", "window"): ('"recovery"}}[{}]', '"replay|crc"}}[{}]'),
    ("NvswitchFatalSxid", "critical", "age_seconds"): ("<{}",),
    ("GpuPcieLinkDegraded", "warning", "busy_ratio"): (">{}unless",),
    ("GpuPcieLinkDegraded", "warning", "window"): ("busy_seconds_total[{}]",),
    ("FabricLinkFlapping", "warning", "short_window"): ("delta{}>1.5",),
    ("FabricLinkFlapping", "warning", "short_events"): (">{}or",),
    ("FabricLinkFlapping", "warning", "long_window"): ("[{}:1h])>2.5",),
    ("FabricLinkFlapping", "warning", "long_events"): ("[12h:1h])>{}",),
    ("FabricPortErrorsRising", "warning", "symbol_per_second"): ('"symbol"}}[10m])>{}or',),
    ("FabricPortErrorsRising", "warning", "retransmit_per_second"): ('"retransmit"}}[10m])>{}or',),
    ("FabricPortErrorsRising", "warning", "window"): (
        '"symbol"}}[{}]',
        '"retransmit"}}[{}]',
        'buffer_overrun"}}[{}]',
    ),
    ("FilesystemFillForecast", "warning", "available_ratio"): ("ratio<{}and",),
    ("FilesystemFillForecast", "warning", "base"): ("ratio[{}],",),
    ("FilesystemFillForecast", "warning", "ahead_seconds"): (",{})<0",),
    ("FilesystemFillForecast", "warning", "seen"): ("ratio[{}]offset",),
    ("FilesystemFillForecast", "warning", "gap"): ("offset{})",),
    ("FilesystemFillForecast", "critical", "available_ratio"): ("ratio<{}and",),
    ("FilesystemFillForecast", "critical", "base"): ("ratio[{}],",),
    ("FilesystemFillForecast", "critical", "ahead_seconds"): (",{})<0",),
    ("FilesystemFillForecast", "critical", "seen"): ("ratio[{}]offset",),
    ("FilesystemFillForecast", "critical", "gap"): ("offset{})",),
    ("FilesystemAlmostFull", "critical", "available_ratio"): ("ratio<{}or",),
    ("FilesystemAlmostFull", "critical", "files_ratio"): ("files<{}and",),
    ("StorageHung", "critical", "probe_age_seconds"): (">{}or",),
    ("StorageHung", "critical", "blocked_age_seconds"): ("age_seconds)>{}",),
    ("BudgetBurnFast", "warning", "factor"): ("rate1h>{}and", "rate6h>{}"),
    ("BudgetBurnFast", "warning", "short_window"): ("ratio_rate{}>4and",),
    ("BudgetBurnFast", "warning", "long_window"): ("andaccount:clusterwatt_budget_burn:ratio_rate{}>4",),
    ("BudgetBurnSlow", "info", "factor"): ("rate6h>{}and", "rate1d>{}"),
    ("BudgetBurnSlow", "info", "short_window"): ("ratio_rate{}>1.2and",),
    ("BudgetBurnSlow", "info", "long_window"): ("andaccount:clusterwatt_budget_burn:ratio_rate{}>1.2",),
    ("FeedPowerNearLimit", "critical", "power_ratio"): ("{}*max",),
    ("ExporterDown", "warning", "window"): (
        'avg_over_time(up{{job="clusterwatt"}}[{}])',
        'changes(up{{job="clusterwatt"}}[{}])',
    ),
    ("ExporterDown", "warning", "up_ratio"): ("<{}",),
    ("ExporterDown", "warning", "changes"): (">{}",),
    ("ExporterDown", "warning", "memory"): ("node_maintenance[{}]",),
    ("NodeInMaintenance", "none", "memory"): ("node_maintenance[{}]",),
    ("MonitoringBlind", "critical", "nodes"): (">={}",),
    ("MonitoringBlind", "critical", "memory"): ("node_maintenance[{}]",),
    ("ExporterVanished", "warning", "memory"): ("build_info[{}]", "node_maintenance[{}]"),
    ("MonitoringBlind", "critical", "down_ratio"): (">{}",),
    ("CollectorStale", "warning", "released_age_seconds"): ('=~"gpu|gpm"}}>{}or',),
    ("CollectorStale", "warning", "feed_age_seconds"): ('=~"grid|price"}}>{}',),
    ("AttributionGap", "warning", "gpus"): ("vector(0))>{}",),
}


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", expression.plain(text))


def file_of(rule: Rule) -> RuleFile:
    return next(file for file in shipped.files() if rule in file.rules)


def test_the_table_has_every_number_of_every_rule() -> None:
    named = {(*key, name) for key, rule in alerts().items() for name in rule.numbers if name != "scrape_job"}
    assert named == set(PLACES)


# Windows that keep a rule silent for as long as somebody's word holds, and delay none.
WORDS = ("last_over_time(clusterwatt_node_maintenance[6h]) == 1",)
TIMES = re.compile(r"\[(\d+[smhd])|offset (\d+[smhd])")


@pytest.mark.parametrize(("name", "severity"), alerts(), ids=lambda part: part)
def test_every_window_of_an_alert_can_be_changed(name: str, severity: str) -> None:
    for line in alerts()[name, severity].expression.splitlines():
        code = expression.plain(line)
        for word in WORDS:
            code = code.replace(word, "")
        times = {found for pair in TIMES.findall(code) for found in pair if found}
        assert times <= set(expression.numbers(line).values()), code


@pytest.mark.parametrize(("name", "severity", "number"), PLACES, ids=lambda part: part)
def test_an_override_reaches_its_place_and_no_other(name: str, severity: str, number: str) -> None:
    rule = alerts()[name, severity]
    default = rule.numbers[number]
    new = "77m" if expression.is_duration(default) else "0.123"
    # Guards are held where they are, so that one thing changes at a time.
    guards = {guard: rule.numbers[guard] for guard in ("guard", "minutes") if guard in rule.numbers}
    values = {**guards, number: new}
    changes = Overrides(rules={(name, severity): Change(values=values)})
    before = squeezed(rule.expression)
    after = squeezed(render.expression_of(rule, file_of(rule), changes))
    for pattern in PLACES[name, severity, number]:
        old, now = pattern.format(default), pattern.format(new)
        assert old in before, f"{old} not in {before}"
        assert now in after, f"{now} not in {after}"
        after = after.replace(now, old)
    assert after == before


@pytest.mark.parametrize(
    ("name", "severity", "values", "guard"),
    [
        ("GpuAllocatedIdle", "warning", {"window": "2h"}, {"guard": "100"}),
        ("GpuAllocatedIdleLong", "critical", {"window": "1h"}, {"guard": "50"}),
        ("JobPartlyIdle", "warning", {"window": "10m"}, {"guard": "8"}),
        ("TrainingStalled", "critical", {"window": "30m"}, {"minutes": "20"}),
        ("TrainingThroughputDrop", "warning", {"window": "1h"}, {"minutes": "60"}),
        ("TrainingThroughputDrop", "warning", {"history": "3h"}, {"minutes": "30"}),
        ("TrainingThroughputDrop", "warning", {"gap": "5m"}, {"minutes": "60"}),
        ("GpuAllocatedIdle", "warning", {"window": "2h", "guard": "7"}, {"guard": "7"}),
    ],
)
def test_the_sample_guard_follows_its_window(
    name: str, severity: str, values: dict[str, str], guard: dict[str, str]
) -> None:
    changes = Overrides(rules={(name, severity): Change(values=values)})
    assert render.values_of(alerts()[name, severity], changes).items() >= guard.items()


def test_guards_of_recorded_series_follow_the_interval_and_those_of_subqueries_do_not() -> None:
    changes = Overrides(interval="30s")
    assert render.values_of(alerts()["GpuAllocatedIdle", "warning"], changes)["guard"] == "100"
    assert render.values_of(alerts()["TrainingStalled", "critical"], changes)["minutes"] == "10"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rate(a[5m]) > 0.1  # share: 0.2", "0.2 stands 0 times"),
        ("rate(a[5m]) > 5 < 5  # share: 5", "5 stands 2 times"),
        ("rate(a[5m]) > 0.1  # share: 0.1\nb > 0.2  # share: 0.2", "share is 0.1 and 0.2"),
    ],
)
def test_a_comment_that_says_something_else_than_its_line_is_refused(line: str, says: str) -> None:
    with pytest.raises(MarkError, match=re.escape(says)):
        expression.numbers(line)


def test_a_value_that_is_part_of_another_stays() -> None:
    assert (
        expression.changed("a[1h] > 1  # errors: 1", {"errors": "2"}) == "a[1h] > 2  # errors: 2 (default 1)"
    )
    both = "a[1h]) >= 50  # window: 1h, guard: 50"
    assert expression.changed(both, {"window": "50m", "guard": "41"}).startswith("a[50m]) >= 41  #")


def test_a_matcher_is_put_on_every_series_that_knows_it() -> None:
    rule = alerts()["FabricPortDown", "critical"]
    changes = Overrides(exempt={"ports": ("mlx5_9", "mlx5_1.")})
    assert render.expression_of(rule, file_of(rule), changes) == (
        'clusterwatt_rdma_port_up{device!~"mlx5_9|mlx5_1."} == 0 and on (instance, device, port) '
        'clusterwatt_rdma_port_expected{device!~"mlx5_9|mlx5_1."} == 1'
    )


def test_regular_expressions_are_quoted() -> None:
    rule = alerts()["StorageHung", "critical"]
    changes = overrides.parse("exempt: {mountpoints: ['/mnt/\\d+', '/a\"b']}", "o.yaml", shipped.files())
    assert '{mountpoint!~"/mnt/\\\\d+|/a\\"b"}' in render.expression_of(rule, file_of(rule), changes)
