"""Energy, carbon, cost: what is drawn and paid, for whom, and how much of it for nothing."""

from __future__ import annotations

from dashboards.board import Board, Query
from dashboards.colours import GREEN, GREY, ORANGE, SKY, STATES, good_below
from dashboards.links import TO_SHORT_JOB
from dashboards.panels import bars, daily, lines, stats, worst_of
from dashboards.tables import OF_JOB, table, who
from dashboards.units import COUNT, GRAMS, KWH, MONEY, RATIO, SECONDS, WATT
from dashboards.variables import HAS

FEED = (
    "sum by (feed) (clusterwatt_node_power_feed_ratio * on (instance) group_left () "
    "instance:clusterwatt_power_watts:rate5m) / on (feed) max by (feed) (clusterwatt_power_feed_capacity_watts)"
)
RAN = 'max_over_time(clusterwatt_job_info{user=~"$user", account=~"$account"}[$__range])'
OF_PARTS = 'component!="platform"'

now = stats(
    "Now, and in the range",
    "Power now from energy counters; energy, carbon and money of all accounts in the range, from the ledgers, "
    "what nobody held included.",
    (24, 4),
    Query("cluster:clusterwatt_power_watts:rate5m", "power now", WATT, decimals=1),
    Query(
        "sum(increase(clusterwatt_account_energy_joules_total[$__range])) / 3.6e6", "energy", KWH, decimals=1
    ),
    Query(
        "sum(increase(clusterwatt_account_carbon_grams_total[$__range]))",
        "CO2e",
        GRAMS,
        decimals=1,
        absent="no grid zone",
    ),
    Query(
        "sum by (currency) (increase(clusterwatt_account_cost_total[$__range]))",
        "{{currency}}",
        MONEY,
        absent="no price book",
    ),
    Query(
        'sum(increase(clusterwatt_node_gpu_state_energy_joules_total{state="idle"}[$__range])) / '
        "sum(increase(clusterwatt_node_gpu_state_energy_joules_total[$__range]))",
        "energy of idle GPUs",
        RATIO,
        good_below(0.02, 0.05),
        decimals=1,
    ),
)
by_state = lines(
    "Power by state of the GPU",
    "GPU power by what the GPU was: active, held and idle, free; rest: everything else in the nodes.",
    (14, 8),
    Query("state:clusterwatt_power_watts:rate5m", "{{state}}", WATT),
    Query(
        "cluster:clusterwatt_power_watts:rate5m - scalar(sum(state:clusterwatt_power_watts:rate5m))",
        "rest of the nodes",
        WATT,
        colour=GREEN,
    ),
    stacked=True,
    colours={f"^{state}$": colour for state, colour in STATES.items()},
)


def _burn(window: str) -> Query:
    rate = f'account:clusterwatt_budget_burn:ratio_rate{window.replace(" ", "")}{{account=~"$account"}}'
    return Query(
        f"max by (account, currency) ({rate})", window, COUNT, good_below(1.2, 4), decimals=1, absent="-"
    )


budgets = table(
    "Accounts and budgets",
    "Spent this month on all nodes, the budget, and how many times too fast it goes (1: exactly the budget at the "
    "end of 30 days) by the last hour, six hours and day.",
    (10, 8),
    Query(
        'sum by (account, currency) (clusterwatt_account_cost_month_to_date{account=~"$account"})',
        "Spent",
        MONEY,
        absent="-",
    ),
    Query(
        'max by (account, currency) (clusterwatt_account_budget_monthly{account=~"$account"})',
        "Budget",
        MONEY,
        absent="no budget",
    ),
    *(_burn(window) for window in ("1 h", "6 h", "1 d")),
    keys={"account": "Account", "currency": "Currency"},
    sort="Spent",
)
top = table(
    "Jobs by energy, in the range",
    "The ten jobs that used most energy, what they cost, and energy for each GPU hour.",
    (14, 8),
    Query(
        "topk(10, sum by (job_id) (increase(clusterwatt_job_energy_joules_total[$__range])) / 3.6e6)",
        "Energy",
        KWH,
        decimals=2,
    ),
    Query(
        "sum by (job_id, currency) (increase(clusterwatt_job_cost_total[$__range]))",
        "Cost",
        MONEY,
        absent="no price",
    ),
    Query(
        "sum by (job_id) (increase(clusterwatt_job_carbon_grams_total[$__range]))",
        "CO2e",
        GRAMS,
        absent="no zone",
        decimals=1,
    ),
    Query(
        "sum by (job_id) (increase(clusterwatt_job_energy_joules_total[$__range])) / "
        "(sum by (job_id) (increase(clusterwatt_job_gpu_seconds_total[$__range])) > 0) / 1000",
        "kWh/GPU h",
        COUNT,
        decimals=2,
    ),
    who(RAN),
    keys={**OF_JOB, "currency": "Currency"},
    links={"Name": TO_SHORT_JOB},
    sort="Energy",
    only="Energy",
    widths={"Name": 110, "Job": 120, "User": 65, "Currency": 75},
)
STATE_ENERGY = 'sum(increase(clusterwatt_node_gpu_state_energy_joules_total{{state="{}"}}[$__range])) / 3.6e6'
STATE_COST = 'sum by (currency) (increase(clusterwatt_node_gpu_state_cost_total{{state="{}"}}[$__range]))'
nothing = stats(
    "For nothing, in the range: GPUs that were idle, and GPUs that nobody held",
    "Energy, and money at the price book's prices, of GPUs that a job held and did not use, and of free GPUs.",
    (10, 8),
    Query(STATE_ENERGY.format("idle"), "idle", KWH, decimals=2, colour=ORANGE),
    Query(STATE_COST.format("idle"), "idle, {{currency}}", MONEY, colour=ORANGE, absent="no price book"),
    Query(STATE_ENERGY.format("free"), "free", KWH, decimals=2, colour=GREY),
    Query(STATE_COST.format("free"), "free, {{currency}}", MONEY, colour=GREY, absent="no price book"),
)
by_day = daily(
    "For nothing: energy of idle and of free GPUs, by day",
    "Energy of GPUs that were held and did nothing, and of GPUs that nobody held, in the day before each bar.",
    (12, 7),
    Query(
        'sum by (state) (increase(clusterwatt_node_gpu_state_energy_joules_total{state=~"idle|free"}[1d])) / 3.6e6',
        "{{state}}",
        KWH,
    ),
    colours={"^idle$": ORANGE, "^free$": GREY},
)
by_day_money = daily(
    "For nothing: money of idle and of free GPUs, by day",
    "The same at the price book's prices.",
    (12, 7),
    Query(
        'sum by (state, currency) (increase(clusterwatt_node_gpu_state_cost_total{state=~"idle|free"}[1d]))',
        "{{state}}, {{currency}}",
        MONEY,
    ),
    colours={"^idle": ORANGE, "^free": GREY},
)
intensity = lines(
    "Carbon intensity of the grid",
    "Grams of CO2 equivalent per kWh that the meters multiply by, by source.",
    (12, 7),
    Query(
        "max by (source, zone, basis) (clusterwatt_carbon_intensity_grams_per_kwh)",
        "{{zone}}, {{source}}, {{basis}}",
        COUNT,
        many=True,
        colour=SKY,
    ),
)
rates = stats(
    "What energy is multiplied by",
    "Age of the carbon intensity where a service states it, price of a kWh, power usage effectiveness of the site.",
    (24, 4),
    Query(
        "max(time() - clusterwatt_carbon_intensity_timestamp_seconds)",
        "age of the intensity",
        SECONDS,
        good_below(21600),
        absent="from a table",
        decimals=0,
    ),
    Query(
        "max by (zone, currency) (clusterwatt_electricity_price_per_kwh)",
        "{{currency}} per kWh, {{zone}}",
        COUNT,
        absent="no price book",
        decimals=3,
    ),
    Query("max(clusterwatt_power_usage_effectiveness)", "PUE", COUNT, decimals=2),
)
tokens = worst_of(
    "Tokens per joule, by run",
    "Tokens of a run over the energy of its job. Higher is better; compare runs of the same model.",
    (12, 7),
    "run",
    "max by (run) (run:clusterwatt_tokens_per_joule:ratio)",
    COUNT,
    colour=GREEN,
)
flops = worst_of(
    "FLOP per joule, by run",
    "Tokens per joule times the model's FLOP per token.",
    (12, 7),
    "run",
    "max by (run) (run:clusterwatt_tokens_per_joule:ratio * on (job_id, run) "
    "max by (job_id, run) (clusterwatt_training_flops_per_token))",
    "short",
    colour=GREEN,
)
feeds = bars(
    "Feeds: load of their capacity",
    "Power of the nodes on each feed over what it carries, where feeds are configured. Normal: under 80 %.",
    (12, 7),
    Query(FEED, "{{feed}}", RATIO, good_below(0.8, 0.9)),
    steps=good_below(0.8, 0.9),
    high=1,
)
methods = bars(
    "How energy was known, last hour",
    "Share of energy from hardware counters, integrated from power, and estimated.",
    (12, 4),
    Query(
        f"sum by (method) (rate(clusterwatt_node_energy_joules_total{{{OF_PARTS}}}[1h])) / "
        f"scalar(sum(rate(clusterwatt_node_energy_joules_total{{{OF_PARTS}}}[1h])))",
        "{{method}}",
        RATIO,
    ),
    high=1,
)
trust = stats(
    "Can the books be trusted",
    "Share of energy that belongs to no job; the largest difference between what was measured and what was "
    "booked, which must be near 0; seconds in which nothing was observed, in the range.",
    (12, 4),
    Query(
        "sum(rate(clusterwatt_unattributed_energy_joules_total[1h])) / (sum(rate(clusterwatt_unattributed_energy_joules_total[1h])) "
        "+ sum(rate(clusterwatt_job_energy_joules_total[1h])))",
        "of no job",
        RATIO,
        decimals=1,
    ),
    Query("max(abs(clusterwatt_ledger_residual_joules))", "residual", "joule", good_below(1)),
    Query("sum(increase(clusterwatt_unobserved_seconds_total[$__range]))", "unobserved", SECONDS, decimals=1),
)

BOARD = Board(
    "energy",
    "Energy, carbon, cost",
    "What is drawn and paid, for whom, and how much of it for nothing.",
    HAS["energy"],
    first=[[now], [by_state, budgets], [top, nothing]],
    folds=[
        ("For nothing, by day", [[by_day, by_day_money]]),
        ("Rates and feeds", [[intensity, feeds], [rates]]),
        ("Tokens and FLOP per joule", [[tokens, flops]]),
        ("Trust", [[methods, trust]]),
    ],
    since="now-7d",
)
