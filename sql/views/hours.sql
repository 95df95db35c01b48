-- Attempts and operations put together by the hour, as the table `rollup` holds them. Internal: the
-- view `rollup` is these rows of the hours that are not in the table, and the table's of all others.
--
-- attempts_open are rows of `attempts`: those that are `here`, by their own time, and first attempts
-- whose operation `ends_here`. An attempt counts in the hour in which it ended. An operation counts in
-- the hour in which it ended, under what its first attempt says. The hour in which a window
-- begins has the window's beginning for its time, and holds what comes after it.
WITH attempt AS (
  SELECT
    CASE WHEN here THEN
      CASE WHEN ts >= $since THEN greatest(date_bin($step, ts), $since) ELSE date_bin($step, ts) END
    END AS at_hour,
    CASE WHEN ends_here THEN
      CASE
        WHEN op_ended_at >= $since THEN greatest(date_bin($step, op_ended_at), $since)
        ELSE date_bin($step, op_ended_at)
      END
    END AS op_hour,
    provider, model, service, tenant, team, scenario, error_class,
    CASE WHEN is_retry THEN greatest(1, least(op_place, 4)) WHEN NOT is_retry THEN 0 END AS retry,
    is_hedge, role, redundant, billing, stream, counted, cache_hit,
    op_place = 0 AND is_retry IS NOT NULL AS opens,
    outcome, op_retries, op_billed, op_likely_billed,
    cost_basis = 'unpriced' AS unpriced,
    decision = 'success' OR error_class = 'none' AS success,
    coverable,
    evidence = 'usage' AS with_usage,
    input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
    received_output_tokens,
    cost_confirmed, cost_expected, cost_ceiling
  FROM attempts_open
),
sums AS (
  SELECT
    at_hour, op_hour,
    provider, model, service, tenant, team, scenario, error_class, retry, is_hedge, role, redundant,
    billing, stream, counted,
    count(*) AS attempts,
    count(*) FILTER (WHERE cache_hit) AS cache_hits,
    count(*) FILTER (WHERE opens) AS opening,
    count(*) FILTER (WHERE success) AS successes,
    count(*) FILTER (WHERE coverable) AS coverable,
    count(*) FILTER (WHERE coverable AND with_usage) AS covered,
    count(*) FILTER (WHERE unpriced) AS unpriced,
    count(*) FILTER (WHERE coverable AND cost_confirmed IS NULL AND unpriced IS NOT TRUE)
      AS tokens_unknown,
    count(*) FILTER (WHERE cost_expected IS NULL) AS cost_unknown,
    count(*) FILTER (WHERE cost_expected IS NULL AND unpriced IS NOT TRUE) AS priced_unknown,
    count(*) FILTER (
      WHERE billing = 'unknown' AND cost_expected IS NULL AND unpriced IS NOT TRUE
    ) AS no_estimate,
    sum(input_tokens) AS input_tokens,
    sum(cached_input_tokens) AS cached_input_tokens,
    sum(cache_write_tokens) AS cache_write_tokens,
    sum(output_tokens) AS output_tokens,
    sum(reasoning_tokens) AS reasoning_tokens,
    sum(received_output_tokens) AS received_output_tokens,
    sum(cost_confirmed) AS cost_confirmed,
    sum(cost_expected) AS cost_expected,
    sum(cost_ceiling) AS cost_ceiling,
    count(*) FILTER (WHERE outcome IS NOT NULL) AS operations,
    count(*) FILTER (WHERE outcome IS NOT NULL AND op_retries > 0) AS operations_retried,
    count(*) FILTER (WHERE outcome IS NULL) AS operations_open,
    count(*) FILTER (WHERE outcome IS NOT NULL AND op_billed >= 2) AS repeated_confirmed,
    count(*) FILTER (
      WHERE outcome IS NOT NULL AND op_billed < 2 AND op_billed + op_likely_billed >= 2
    ) AS repeated_likely
  FROM attempt
  GROUP BY
    at_hour, op_hour,
    provider, model, service, tenant, team, scenario, error_class, retry, is_hedge, role, redundant,
    billing, stream, counted
),
-- Each group twice: for its attempts, and for the operations that it opens.
part AS (
  SELECT *, unnest([TRUE, FALSE]) AS of_attempts
  FROM sums
),
hour AS (
  SELECT
    *,
    -- date_bin counts nanoseconds.
    arrow_cast(
      CASE WHEN of_attempts THEN at_hour ELSE op_hour END, 'Timestamp(Microsecond, Some("UTC"))'
    ) AS hour
  FROM part
)
SELECT
  hour,
  provider, model, service, tenant, team, scenario, error_class, retry, is_hedge, role, redundant,
  billing, stream, counted,
  coalesce(sum(attempts) FILTER (WHERE of_attempts), 0) AS attempts,
  coalesce(sum(cache_hits) FILTER (WHERE of_attempts), 0) AS cache_hits,
  coalesce(sum(opening) FILTER (WHERE of_attempts), 0) AS opening,
  coalesce(sum(successes) FILTER (WHERE of_attempts), 0) AS successes,
  coalesce(sum(coverable) FILTER (WHERE of_attempts), 0) AS coverable,
  coalesce(sum(covered) FILTER (WHERE of_attempts), 0) AS covered,
  coalesce(sum(unpriced) FILTER (WHERE of_attempts), 0) AS unpriced,
  coalesce(sum(tokens_unknown) FILTER (WHERE of_attempts), 0) AS tokens_unknown,
  coalesce(sum(cost_unknown) FILTER (WHERE of_attempts), 0) AS cost_unknown,
  coalesce(sum(priced_unknown) FILTER (WHERE of_attempts), 0) AS priced_unknown,
  coalesce(sum(no_estimate) FILTER (WHERE of_attempts), 0) AS no_estimate,
  sum(input_tokens) FILTER (WHERE of_attempts) AS input_tokens,
  sum(cached_input_tokens) FILTER (WHERE of_attempts) AS cached_input_tokens,
  sum(cache_write_tokens) FILTER (WHERE of_attempts) AS cache_write_tokens,
  sum(output_tokens) FILTER (WHERE of_attempts) AS output_tokens,
  sum(reasoning_tokens) FILTER (WHERE of_attempts) AS reasoning_tokens,
  sum(received_output_tokens) FILTER (WHERE of_attempts) AS received_output_tokens,
  CAST(sum(cost_confirmed) FILTER (WHERE of_attempts) AS DECIMAL(38, 12)) AS cost_confirmed,
  CAST(sum(cost_expected) FILTER (WHERE of_attempts) AS DECIMAL(38, 12)) AS cost_expected,
  CAST(sum(cost_ceiling) FILTER (WHERE of_attempts) AS DECIMAL(38, 12)) AS cost_ceiling,
  coalesce(sum(operations) FILTER (WHERE NOT of_attempts), 0) AS operations,
  coalesce(sum(operations_retried) FILTER (WHERE NOT of_attempts), 0) AS operations_retried,
  coalesce(sum(operations_open) FILTER (WHERE NOT of_attempts), 0) AS operations_open,
  coalesce(sum(repeated_confirmed) FILTER (WHERE NOT of_attempts), 0) AS repeated_confirmed,
  coalesce(sum(repeated_likely) FILTER (WHERE NOT of_attempts), 0) AS repeated_likely,
  CAST(0 AS BIGINT) AS folded
FROM hour
WHERE hour IS NOT NULL
GROUP BY
  hour,
  provider, model, service, tenant, team, scenario, error_class, retry, is_hedge, role, redundant,
  billing, stream, counted
