-- An operation a row: its counted attempts put together, from the view `attempts`.
WITH attempt AS (
  SELECT
    operation_id, op_seq, op_place, op_attempts, service, request_id, tenant, team, api_key_id,
    scenario, prompt_hash, provider, model, error_class, decision, role, outcome, is_retry,
    is_hedge, overlong,
    coalesce(started_at, ts - arrow_cast(elapsed_ms, 'Duration(Millisecond)'), ts) AS began,
    ts, cost_confirmed, cost_expected, cost_ceiling, op_billed, op_likely_billed, redundant
  FROM attempts
  WHERE counted
),
-- One row already; no need to group them.
lone AS (
  SELECT
    operation_id, op_seq, service, request_id, tenant, team, api_key_id, scenario, prompt_hash,
    provider, model AS first_model, model AS last_model,
    began AS started_at, ts AS ended_at, outcome,
    error_class AS first_class, error_class AS last_class, decision AS last_decision,
    CAST(CASE WHEN role IN ('delivered', 'cached') AND outcome = 'delivered' THEN 0 END AS BIGINT) AS delivered_by,
    CAST(1 AS BIGINT) AS attempts,
    CAST(is_retry AS BIGINT) AS retries,
    CAST(0 AS BIGINT) AS hedges,
    op_billed AS billed,
    op_likely_billed AS likely_billed,
    CAST(NULL AS VARCHAR) AS repeated_billing,
    overlong,
    CAST(cost_confirmed AS DECIMAL(38, 12)) AS confirmed_usd,
    CAST(cost_expected AS DECIMAL(38, 12)) AS expected_usd,
    CAST(cost_ceiling AS DECIMAL(38, 12)) AS ceiling_usd,
    CAST(0 AS DECIMAL(38, 12)) AS redundant_confirmed_usd,
    CAST(0 AS DECIMAL(38, 12)) AS redundant_expected_usd,
    CAST(cost_expected IS NULL AS BIGINT) AS cost_unknown
  FROM attempt
  WHERE op_attempts = 1
),
several AS (
  SELECT
    operation_id,
    min(op_seq) AS op_seq,
    service, request_id,
    first_value(tenant ORDER BY op_place) AS tenant,
    first_value(team ORDER BY op_place) AS team,
    first_value(api_key_id ORDER BY op_place) AS api_key_id,
    first_value(scenario ORDER BY op_place) AS scenario,
    first_value(prompt_hash ORDER BY op_place) AS prompt_hash,
    first_value(provider ORDER BY op_place) AS provider,
    first_value(model ORDER BY op_place) AS first_model,
    last_value(model ORDER BY op_place) AS last_model,
    min(began) AS started_at,
    max(ts) AS ended_at,
    max(outcome) AS outcome,
    first_value(error_class ORDER BY op_place) AS first_class,
    last_value(error_class ORDER BY op_place) AS last_class,
    last_value(decision ORDER BY op_place) AS last_decision,
    min(op_place) FILTER (WHERE role IN ('delivered', 'cached') AND decision = 'success') AS delivered_by,
    count(*) AS attempts,
    count(*) FILTER (WHERE is_retry) AS retries,
    count(*) FILTER (WHERE is_hedge) AS hedges,
    max(op_billed) AS billed,
    max(op_likely_billed) AS likely_billed,
    bool_or(overlong) AS overlong,
    CAST(sum(cost_confirmed) AS DECIMAL(38, 12)) AS confirmed_usd,
    CAST(sum(cost_expected) AS DECIMAL(38, 12)) AS expected_usd,
    CAST(sum(cost_ceiling) AS DECIMAL(38, 12)) AS ceiling_usd,
    CAST(sum(cost_confirmed) FILTER (WHERE redundant) AS DECIMAL(38, 12)) AS redundant_confirmed,
    CAST(sum(cost_expected) FILTER (WHERE redundant) AS DECIMAL(38, 12)) AS redundant_expected,
    count(*) FILTER (WHERE redundant) AS redundant,
    count(*) FILTER (WHERE cost_expected IS NULL) AS cost_unknown
  FROM attempt
  WHERE op_attempts > 1
  GROUP BY operation_id, service, request_id
)
SELECT * FROM lone
UNION ALL BY NAME
SELECT
  * EXCLUDE (redundant, redundant_confirmed, redundant_expected),
  CASE
    WHEN billed >= 2 THEN 'confirmed'
    WHEN billed + likely_billed >= 2 THEN 'likely'
  END AS repeated_billing,
  -- Nothing redundant costs nothing; redundant attempts of which no cost is known have none.
  CASE WHEN redundant = 0 THEN CAST(0 AS DECIMAL(38, 12)) ELSE redundant_confirmed END
    AS redundant_confirmed_usd,
  CASE WHEN redundant = 0 THEN CAST(0 AS DECIMAL(38, 12)) ELSE redundant_expected END
    AS redundant_expected_usd
FROM several
