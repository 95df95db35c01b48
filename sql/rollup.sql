-- The rows of the table `rollup` of the hours from $since to $until, made of the attempts.
--
-- Of an hour, the $rows_max rows with the most attempts keep their names. The tail is put under
-- provider, model, service, tenant, team and scenario `other`, by what else it is: no sum loses
-- anything. folded counts what a row holds of them.
WITH ranked AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY hour
      ORDER BY
        attempts DESC, operations DESC,
        provider, model, service, tenant, team, scenario, error_class, retry, is_hedge, role,
        redundant, billing, stream, counted
    ) <= $rows_max AS named
  FROM rollup
  WHERE hour >= $since AND hour < $until
)
SELECT
  hour,
  CASE WHEN named THEN provider ELSE 'other' END AS provider,
  CASE WHEN named THEN model ELSE 'other' END AS model,
  CASE WHEN named THEN service ELSE 'other' END AS service,
  CASE WHEN named THEN tenant ELSE 'other' END AS tenant,
  CASE WHEN named THEN team ELSE 'other' END AS team,
  CASE WHEN named THEN scenario ELSE 'other' END AS scenario,
  error_class, retry, is_hedge, role, redundant, billing, stream, counted,
  sum(attempts) AS attempts,
  sum(cache_hits) AS cache_hits,
  sum(opening) AS opening,
  sum(successes) AS successes,
  sum(coverable) AS coverable,
  sum(covered) AS covered,
  sum(unpriced) AS unpriced,
  sum(tokens_unknown) AS tokens_unknown,
  sum(cost_unknown) AS cost_unknown,
  sum(priced_unknown) AS priced_unknown,
  sum(no_estimate) AS no_estimate,
  sum(input_tokens) AS input_tokens,
  sum(cached_input_tokens) AS cached_input_tokens,
  sum(cache_write_tokens) AS cache_write_tokens,
  sum(output_tokens) AS output_tokens,
  sum(reasoning_tokens) AS reasoning_tokens,
  sum(received_output_tokens) AS received_output_tokens,
  sum(cost_confirmed) AS cost_confirmed,
  sum(cost_expected) AS cost_expected,
  sum(cost_ceiling) AS cost_ceiling,
  sum(operations) AS operations,
  sum(operations_retried) AS operations_retried,
  sum(operations_open) AS operations_open,
  sum(repeated_confirmed) AS repeated_confirmed,
  sum(repeated_likely) AS repeated_likely,
  count(*) FILTER (WHERE NOT named) AS folded,
  $version AS attempts_version
FROM ranked
GROUP BY
  hour, named, 2, 3, 4, 5, 6, 7,
  error_class, retry, is_hedge, role, redundant, billing, stream, counted
