-- Late attempts: they came after their partition had gone on for two hours, when what it said of
-- their time was already called final (MONEY.md, section 4: complete_through). None is lost: each
-- stands under its own time, in its operation, and in every figure that is asked for since.
--
-- An attempt is late where a record before it in its partition is of a time more than 120 minutes
-- later, both times cut to the minute; how late it was is told by the latest such record, of the
-- window and the four hours after it. A record whose time was flagged as odd makes nothing late; one from a host
-- whose clock is hours ahead does. Of a file the lines are the records, so a file that is not in the
-- order of time has late lines.
WITH minute AS (
  SELECT
    source, source_partition,
    arrow_cast(ts, 'Int64') / 60000000 AS minute,
    min(source_offset) FILTER (WHERE strpos(coalesce(flags, ''), 'ts_odd') = 0) AS first_offset
  FROM attempts_near
  WHERE ts >= $since
  GROUP BY 1, 2, 3
),
-- Every record of that minute is late from this offset on (exclusive).
passed AS (
  SELECT
    source AS passed_source,
    source_partition AS passed_partition,
    minute AS passed_minute,
    min(first_offset) OVER (
      PARTITION BY source, source_partition ORDER BY minute
      RANGE BETWEEN 121 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS passed_at
  FROM minute
),
attempt AS (
  SELECT
    CASE $by
      WHEN 'partition' THEN source || '/' || source_partition
      ELSE service
    END AS key,
    source, source_partition, source_offset, source_index, cost_confirmed, cost_expected,
    arrow_cast(ts, 'Int64') / 60000000 AS minute
  FROM attempts
  WHERE counted AND ts >= $since AND ts < $until
),
late AS (
  SELECT attempt.*
  FROM passed
  JOIN attempt
    ON passed_source = source AND passed_partition = source_partition AND passed_minute = minute
  WHERE source_offset > passed_at
),
-- The late ones among the records that were the first of their minute, to see how far the partition
-- was when they came; at one offset they stand first, for a record is not behind itself.
moment AS (
  SELECT *, source_offset AS at, CAST(NULL AS BIGINT) AS reached, 0 AS turn FROM late
  UNION ALL BY NAME
  SELECT source, source_partition, first_offset AS at, minute AS reached, 1 AS turn
  FROM minute
  WHERE first_offset IS NOT NULL
),
measured AS (
  SELECT
    key, turn, cost_confirmed, cost_expected,
    60000 * (
      max(reached) OVER (
        PARTITION BY source, source_partition ORDER BY at, turn ROWS UNBOUNDED PRECEDING
      ) - minute
    ) AS late_ms
  FROM moment
),
ranked AS (
  SELECT
    key, late_ms,
    sum(cost_expected) AS expected,
    sum(cost_confirmed) AS confirmed,
    count(*) FILTER (WHERE cost_expected IS NULL) AS cost_unknown,
    count(*) AS late,
    sum(count(*)) OVER (PARTITION BY key ORDER BY late_ms) AS rank,
    sum(count(*)) OVER (PARTITION BY key) AS of_all
  FROM measured
  WHERE turn = 0
  GROUP BY key, late_ms
),
sums AS (
  SELECT
    key,
    sum(late) AS late,
    min(late_ms) FILTER (WHERE rank * 2 >= of_all) AS late_p50_ms,
    max(late_ms) AS late_max_ms,
    sum(expected) AS expected,
    sum(confirmed) AS confirmed,
    sum(cost_unknown) AS cost_unknown
  FROM ranked
  GROUP BY key
),
totals AS (
  SELECT coalesce(key, '') AS total_key, count(*) AS attempts
  FROM attempt
  GROUP BY 1
)
SELECT
  key,
  CAST(late AS BIGINT) AS late,
  attempts,
  CAST(100 * (CAST(late AS DECIMAL(20, 12)) / attempts) AS DECIMAL(18, 12)) AS late_pct,
  late_p50_ms,
  late_max_ms,
  CAST(expected AS DECIMAL(38, 12)) AS late_expected_usd,
  CAST(confirmed AS DECIMAL(38, 12)) AS late_confirmed_usd,
  CAST(cost_unknown AS BIGINT) AS late_cost_unknown,
  CASE WHEN attempts < $attempts_min THEN
    'too few: ' || attempts || ' of ' || $attempts_min
  END AS note
FROM sums
JOIN totals ON coalesce(key, '') = total_key
ORDER BY late_expected_usd DESC NULLS LAST, late DESC, key
