-- Timeouts against what answers need: which are shorter than the model's answers take, and what
-- was given up for that (MONEY.md, section 5).
--
-- An attempt's timeout is read_timeout_ms or timeout_ms, the shorter; of a streamed one timeout_ms
-- alone, for its read timeout runs anew with each piece. It timed out where its class is read and
-- it took nine tenths of its timeout or more. How long answers take is measured by model, over all
-- services and sizes, on answers that were not cached; a percentile is the nearest rank. The
-- suggested timeout of an attempt is what the policy says:
--   the longer of p95 + 10 s and max_tokens / output rate + 10 s.
-- The rate is that of the model's answers with the provider's usage, tokens in all by time in all
-- (less ttft_ms); under $answers_min of them 12 tokens a second, and under as many answers there is
-- no p95 to go by. In the policy p95 is of a week: ask with --since 7d.
--
-- A timed-out attempt is taken as false where its timeout was under the suggested one and there is
-- a sign that the model was at work: the provider billed it, or a later attempt of its operation
-- on this model was delivered. expected_false_pct comes from elsewhere: of the model's answers
-- that no timeout or only a longer one bounded, those that took longer than timeout_ms. A row's
-- timeout is the shortest in use, and its suggestion the longest that one of its attempts has.
WITH attempt AS (
  SELECT
    service, model, operation_id, op_place, billing, max_tokens, cost_confirmed, cost_expected,
    arrow_cast(elapsed_ms, 'Int64') AS elapsed_ms,
    CASE WHEN stream THEN timeout_ms ELSE least(read_timeout_ms, timeout_ms) END AS limit_ms,
    error_class = 'read' AS broke,
    coverable AND elapsed_ms IS NOT NULL AS answered,
    CASE WHEN evidence = 'usage' AND output_tokens > 0 AND elapsed_ms > coalesce(ttft_ms, 0) THEN
      output_tokens
    END AS timed_tokens,
    elapsed_ms - coalesce(ttft_ms, 0) AS output_ms
  FROM attempts
  WHERE counted AND cache_hit IS NOT TRUE AND ts >= $since AND ts < $until
),
answer AS (
  SELECT
    model, limit_ms, elapsed_ms,
    count(*) AS answers,
    count(timed_tokens) AS timed,
    sum(timed_tokens) AS tokens,
    sum(output_ms) FILTER (WHERE timed_tokens IS NOT NULL) AS tokens_ms
  FROM attempt
  WHERE answered
  GROUP BY model, limit_ms, elapsed_ms
),
taken AS (
  SELECT
    model, elapsed_ms,
    sum(timed) AS timed,
    sum(tokens) AS tokens,
    sum(tokens_ms) AS tokens_ms,
    -- How many answers took as long or less, of how many.
    sum(sum(answers)) OVER (PARTITION BY model ORDER BY elapsed_ms) AS rank,
    sum(sum(answers)) OVER (PARTITION BY model) AS answers
  FROM answer
  GROUP BY model, elapsed_ms
),
measured AS (
  SELECT
    model AS measured_model,
    CAST(max(answers) AS BIGINT) AS answers,
    min(elapsed_ms) FILTER (WHERE rank * 100 >= answers * 50) AS p50_ms,
    min(elapsed_ms) FILTER (WHERE rank * 100 >= answers * 90) AS p90_ms,
    min(elapsed_ms) FILTER (WHERE rank * 100 >= answers * 95) AS p95_ms,
    min(elapsed_ms) FILTER (WHERE rank * 100 >= answers * 99) AS p99_ms,
    CASE WHEN sum(timed) >= $answers_min THEN sum(tokens) ELSE 12 END AS tokens,
    CASE WHEN sum(timed) >= $answers_min THEN sum(tokens_ms) ELSE 1000 END AS tokens_ms
  FROM taken
  GROUP BY model
),
delivered AS (
  SELECT operation_id AS delivered_id, model AS delivered_model, max(op_place) AS delivered_place
  FROM attempts
  WHERE counted AND op_attempts > 1 AND role = 'delivered'
  GROUP BY operation_id, model
),
bounded AS (
  SELECT
    *,
    broke AND elapsed_ms * 10 >= limit_ms * 9 AS timed_out,
    greatest(
      CASE WHEN answers >= $answers_min THEN p95_ms + 10000 END,
      -- Without answers of the model, 12 tokens a second.
      (max_tokens * coalesce(tokens_ms, 1000) + coalesce(tokens, 12) - 1) / coalesce(tokens, 12)
        + 10000
    ) AS suggested_ms
  -- The engine holds the left side in memory.
  FROM measured
  RIGHT JOIN attempt ON measured_model = model
  WHERE limit_ms IS NOT NULL
),
judged AS (
  SELECT
    *,
    CASE WHEN $by = 'timeout' THEN limit_ms END AS one_limit_ms,
    coalesce(
      timed_out AND limit_ms < suggested_ms
        AND (billing = 'billed' OR delivered_place > op_place),
      FALSE
    ) AS is_false
  FROM delivered
  RIGHT JOIN bounded
    ON timed_out AND delivered_id = operation_id AND delivered_model = model
),
fit AS (
  SELECT
    service, model, one_limit_ms,
    min(limit_ms) AS timeout_ms,
    count(DISTINCT limit_ms) AS timeouts,
    count(*) AS attempts,
    count(*) FILTER (WHERE timed_out) AS timed_out,
    count(*) FILTER (WHERE is_false) AS false_timeouts,
    CAST(max(suggested_ms) AS BIGINT) AS suggested_timeout_ms,
    max(answers) AS answers,
    max(p50_ms) AS p50_ms,
    max(p90_ms) AS p90_ms,
    max(p95_ms) AS p95_ms,
    max(p99_ms) AS p99_ms,
    sum(cost_expected) FILTER (WHERE is_false) AS expected,
    sum(cost_confirmed) FILTER (WHERE is_false) AS confirmed,
    count(*) FILTER (WHERE is_false AND cost_expected IS NULL) AS cost_unknown
  FROM judged
  GROUP BY service, model, one_limit_ms
),
-- With the answers that were free to take longer than the row's timeout, and those that did.
fitted AS (
  SELECT
    fit.*,
    sum(answer.answers) AS free,
    sum(CASE WHEN answer.elapsed_ms > fit.timeout_ms THEN answer.answers ELSE 0 END) AS longer
  FROM fit
  LEFT JOIN answer
    ON fit.model = answer.model
    AND (answer.limit_ms IS NULL OR answer.limit_ms > fit.timeout_ms)
  GROUP BY ALL
)
SELECT
  service AS key,
  model,
  timeout_ms,
  timeouts,
  suggested_timeout_ms,
  attempts,
  timed_out,
  false_timeouts,
  CAST(100 * (CAST(false_timeouts AS DECIMAL(20, 12)) / attempts) AS DECIMAL(18, 12)) AS false_pct,
  CAST(100 * (CAST(longer AS DECIMAL(20, 12)) / free) AS DECIMAL(18, 12)) AS expected_false_pct,
  coalesce(answers, 0) AS answers,
  CAST(coalesce(free, 0) AS BIGINT) AS answers_elsewhere,
  p50_ms,
  p90_ms,
  p95_ms,
  p99_ms,
  CAST(CASE WHEN false_timeouts = 0 THEN 0 ELSE expected END AS DECIMAL(38, 12))
    AS false_expected_usd,
  CAST(CASE WHEN false_timeouts = 0 THEN 0 ELSE confirmed END AS DECIMAL(38, 12))
    AS false_confirmed_usd,
  cost_unknown AS false_cost_unknown,
  CASE
    WHEN coalesce(answers, 0) < $answers_min THEN
      'too few answers: ' || coalesce(answers, 0) || ' of ' || $answers_min
    WHEN attempts < $attempts_min THEN 'too few: ' || attempts || ' of ' || $attempts_min
    WHEN timeouts > 1 THEN 'several timeouts: see --by timeout'
    WHEN timeout_ms < suggested_timeout_ms THEN 'shorter than suggested'
  END AS note
FROM fitted
ORDER BY
  false_expected_usd DESC NULLS LAST, false_timeouts DESC, timed_out DESC, key, model, timeout_ms
