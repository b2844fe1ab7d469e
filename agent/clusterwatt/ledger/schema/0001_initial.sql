-- The books of one node. Amounts are seconds, joules, grams and money; NULL: not known.
--
-- What is booked is kept twice: by full hour and entry (usage), so that any period can be reported, and as
-- running totals of each job (total), so that a report and a restart need not add up hours. Totals of accounts
-- and of nobody (the job with the empty id) outlive the hours and jobs that retention removes.

CREATE TABLE node (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    began_s REAL NOT NULL,
    -- How many there were, and the wall time of the last.
    commits INTEGER NOT NULL DEFAULT 0,
    committed_s REAL,
    boot_id TEXT NOT NULL DEFAULT '',
    unobserved_seconds REAL NOT NULL DEFAULT 0,
    measured_joules REAL NOT NULL DEFAULT 0,
    -- Hours before this one have been removed; NULL: none.
    kept_from_s INTEGER
);

-- Where the books stand for each device: the raw counters that the next commit starts from.
CREATE TABLE baseline (
    device TEXT PRIMARY KEY,
    counter_joules REAL,
    read_s REAL NOT NULL,
    signal TEXT NOT NULL,
    held TEXT NOT NULL -- JSON: [[job_id, account, share], ...]
) WITHOUT ROWID;

CREATE TABLE job (
    number INTEGER PRIMARY KEY,
    job_id TEXT NOT NULL UNIQUE,
    scheduler TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL DEFAULT '',
    user TEXT NOT NULL DEFAULT '',
    uid TEXT NOT NULL DEFAULT '',
    account TEXT NOT NULL DEFAULT '',
    partition TEXT NOT NULL DEFAULT '',
    queue TEXT NOT NULL DEFAULT '',
    array_job TEXT NOT NULL DEFAULT '',
    array_task TEXT NOT NULL DEFAULT '',
    k8s_namespace TEXT NOT NULL DEFAULT '',
    k8s_owner TEXT NOT NULL DEFAULT '',
    k8s_owner_kind TEXT NOT NULL DEFAULT '',
    exempt INTEGER NOT NULL DEFAULT 0,
    started_s REAL,
    first_seen_s REAL,
    last_seen_s REAL,
    ended_s REAL,
    -- First and last full hour in which anything was booked on the job.
    first_hour_s INTEGER,
    last_hour_s INTEGER,
    gpus TEXT NOT NULL DEFAULT '{}' -- JSON: how many different devices of each model it has held
);

CREATE INDEX job_by_last_hour ON job (last_hour_s);

-- What is booked apart from everything else; `usage` refers to it by number.
CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES job (number),
    account TEXT NOT NULL,
    device TEXT NOT NULL,
    gpu_name TEXT NOT NULL,
    component TEXT NOT NULL,
    state TEXT NOT NULL,
    method TEXT NOT NULL,
    currency TEXT NOT NULL,
    UNIQUE (job, account, device, gpu_name, component, state, method, currency)
);

-- Rows of one hour lie together: a commit changes few pages. The index is for reports on single jobs.
CREATE TABLE usage (
    hour_s INTEGER NOT NULL,
    entry INTEGER NOT NULL REFERENCES entry (number),
    gpu_seconds REAL NOT NULL,
    unobserved_seconds REAL NOT NULL,
    observed_seconds REAL NOT NULL,
    activity_seconds REAL NOT NULL,
    tensor_observed_seconds REAL NOT NULL,
    tensor_seconds REAL NOT NULL,
    joules REAL,
    carbon_grams REAL,
    energy_cost REAL,
    gpu_cost REAL,
    PRIMARY KEY (hour_s, entry)
) WITHOUT ROWID;

CREATE INDEX usage_by_entry ON usage (entry, hour_s);

-- Running totals of a job since it was first seen here. Written as they are, never by adding in SQL: what the
-- page shows after a restart is the same to the last bit, or Prometheus would see a counter that fell.
CREATE TABLE total (
    job INTEGER NOT NULL REFERENCES job (number),
    account TEXT NOT NULL,
    currency TEXT NOT NULL,
    gpu_seconds REAL,
    idle_gpu_seconds REAL,
    unobserved_seconds REAL,
    observed_seconds REAL,
    activity_seconds REAL,
    tensor_observed_seconds REAL,
    tensor_seconds REAL,
    gpu_counter_joules REAL,
    gpu_integrated_joules REAL,
    gpu_estimated_joules REAL,
    cpu_counter_joules REAL,
    cpu_integrated_joules REAL,
    cpu_estimated_joules REAL,
    dram_counter_joules REAL,
    dram_integrated_joules REAL,
    dram_estimated_joules REAL,
    other_counter_joules REAL,
    other_integrated_joules REAL,
    other_estimated_joules REAL,
    idle_joules REAL,
    carbon_grams REAL,
    energy_cost REAL,
    gpu_cost REAL,
    idle_cost REAL,
    PRIMARY KEY (job, account, currency)
) WITHOUT ROWID;

-- Running totals of an account, over all its jobs; the empty account is the rest, nobody's part included.
CREATE TABLE account (
    account TEXT NOT NULL,
    currency TEXT NOT NULL,
    joules REAL,
    carbon_grams REAL,
    energy_cost REAL,
    gpu_cost REAL,
    PRIMARY KEY (account, currency)
) WITHOUT ROWID;

-- Money of an account in a calendar month (2026-11) of the configured zone.
CREATE TABLE account_month (
    month TEXT NOT NULL,
    account TEXT NOT NULL,
    currency TEXT NOT NULL,
    cost REAL NOT NULL,
    PRIMARY KEY (month, account, currency)
) WITHOUT ROWID;

INSERT INTO job (number, job_id) VALUES (0, '');
