-- An attempt a row, as everyone queries it: the stored row, and what its operation makes of it.
--
-- Lines that a later line of the same attempt replaced are not there. is_retry is told of what
-- the format gave no number, too; counted is false of what was logged twice. operation_id is the
-- lineage of the operation's first attempt, op_place an attempt's place in it from 0. outcome and
-- role are null while the operation is open. op_attempts, op_retries (hedges out), op_billed and
-- op_likely_billed (hedges and cancelled ones out) and op_ended_at are the operation's own, the same
-- on each of its attempts; op_last is told of the one that ended last.
--
-- redundant: what the toll is made of. coverable: an answer that can lack the provider's usage; an
-- attempt of unknown billing never does.
--
-- cost_expected: confirmed, or p_billed x an estimate where it is unknown whether the provider
-- billed; null where neither is known, which no sum may take for 0. expected_basis names the
-- estimate: the attempt's own tokens, a sibling's, the profile's medians, or the formula. With the
-- profile an attempt's own input goes before the median, as a prompt of 50,000 tokens is not a
-- median one; and no answer is longer than its max_tokens. Digits beyond the twelfth are rounded
-- once per attempt. Where cost_ceiling is not told, the sibling's input bounds it, else the
-- profile's 99th percentile; that alone is no estimate.
WITH attempt AS (
  -- Complete in themselves.
  SELECT
    *,
    source || '/' || source_partition || '/' || source_offset || '/' || source_index
      AS operation_id,
    CAST(NULL AS BIGINT) AS op_seq,
    CAST(0 AS BIGINT) AS op_place,
    CAST(1 AS BIGINT) AS op_attempts,
    CAST(0 AS BIGINT) AS op_retries,
    CAST(billing = 'billed' AS BIGINT) AS op_billed,
    CAST(billing = 'unknown' AND p_billed >= 0.5 AS BIGINT) AS op_likely_billed,
    ts AS op_ended_at,
    TRUE AS op_last,
    FALSE AS is_hedge,
    FALSE AS double_logged,
    FALSE AS overlong,
    CASE
      WHEN decision = 'success' THEN 'delivered'
      WHEN decision = 'cancelled' THEN 'cancelled'
      WHEN error_class IN ('read', 'stream') THEN 'timed_out'
      ELSE 'failed'
    END AS outcome,
    CASE
      WHEN cache_hit THEN 'cached'
      WHEN decision = 'success' THEN 'delivered'
      WHEN decision = 'cancelled' OR error_class = 'cancelled' THEN 'cancelled'
      ELSE 'undelivered'
    END AS role,
    CAST(NULL AS BIGINT) AS sibling_input,
    CAST(NULL AS BIGINT) AS sibling_output
  FROM attempts_near
  WHERE NOT to_place(service, request_id)
  UNION ALL BY NAME
  SELECT * EXCLUDE (superseded) FROM placed WHERE NOT superseded
),
marked AS (
  -- Where the provider stops on a disconnect, nothing after it was made.
  SELECT *, strpos(coalesce(flags, ''), 'stops_on_disconnect') > 0 AS stops
  FROM attempt
),
known AS (
  SELECT
    * EXCLUDE (sibling_input, sibling_output),
    -- Zero tokens of an attempt that failed are unknown, not none.
    CAST(NULLIF(input_tokens, 0) AS DECIMAL(15, 0)) AS own_input,
    CAST(sibling_input AS DECIMAL(15, 0)) AS sibling_input,
    CAST(received_output_tokens AS DECIMAL(15, 0)) AS received,
    CAST(
      CASE WHEN stops THEN received_output_tokens ELSE NULLIF(output_tokens, 0) END
      AS DECIMAL(15, 0)
    ) AS own_output,
    CAST(
      CASE WHEN stops THEN received_output_tokens ELSE sibling_output END
      AS DECIMAL(15, 0)
    ) AS sibling_output,
    CAST(max_tokens * coalesce(n, 1) AS DECIMAL(15, 0)) AS output_max,
    CASE WHEN billing = 'unknown' THEN input_usd_per_mtok END AS input_price,
    CASE WHEN billing = 'unknown' THEN output_usd_per_mtok END AS output_price
  FROM marked
),
-- The profile is asked only where nothing nearer tells.
wanted AS (
  SELECT
    *,
    input_price IS NOT NULL
      AND (own_input IS NULL OR own_output IS NULL)
      AND (sibling_input IS NULL OR sibling_output IS NULL) AS wants_estimate,
    input_price IS NOT NULL
      AND cost_ceiling IS NULL AND (sibling_input IS NULL OR output_max IS NULL) AS wants_ceiling
  FROM known
),
-- A million tokens at a price, in millionths of it.
estimated AS (
  SELECT
    * EXCLUDE (sibling_input, own_output, sibling_output, wants_estimate, wants_ceiling),
    (own_input * input_price + own_output * output_price) * 0.000001 AS by_own,
    (sibling_input * input_price + sibling_output * output_price) * 0.000001 AS by_sibling,
    TRY_CAST(
      (sibling_input * input_price + output_max * output_price) * 0.000001 AS DECIMAL(18, 12)
    ) AS sibling_ceiling,
    profile_of('input_median', wants_estimate, date, provider, model, service, max_tokens)
      AS input_median,
    profile_of('output_median', wants_estimate, date, provider, model, service, max_tokens)
      AS output_median,
    profile_of('input_p99', wants_ceiling, date, provider, model, service, max_tokens)
      AS input_p99,
    profile_of('output_p99', wants_ceiling, date, provider, model, service, max_tokens)
      AS output_p99
  FROM wanted
),
bounded AS (
  SELECT
    * EXCLUDE (
      own_input, output_max, input_price, output_price, received, stops, input_median,
      output_median, input_p99, output_p99, cost_ceiling, sibling_ceiling
    ),
    CASE WHEN input_median IS NOT NULL THEN (
      coalesce(own_input, input_median) * input_price
      + CASE WHEN stops THEN received ELSE least(output_median, output_max) END * output_price
    ) * 0.000001 END AS by_profile,
    coalesce(cost_ceiling, sibling_ceiling) AS by_formula,
    coalesce(
      cost_ceiling,
      sibling_ceiling,
      CASE WHEN input_p99 IS NOT NULL THEN TRY_CAST(
        (
          coalesce(own_input, input_p99) * input_price
          + coalesce(CASE WHEN stops THEN received END, output_max, output_p99) * output_price
        ) * 0.000001 AS DECIMAL(18, 12)
      ) END
    ) AS cost_ceiling
  FROM estimated
)
SELECT
  * EXCLUDE (by_own, by_sibling, by_profile, by_formula)
  REPLACE (
    prompt_hash_kind || ':' || encode(prompt_hash, 'hex') AS prompt_hash,
    wire_prompt_hash_kind || ':' || encode(wire_prompt_hash, 'hex') AS wire_prompt_hash,
    system_hash_kind || ':' || encode(system_hash, 'hex') AS system_hash
  ),
  role = 'repeat' OR role = 'undelivered' AND op_attempts > 1 AS redundant,
  error_class IN ('none', 'truncated', 'invalid_output') AND cache_hit IS NOT TRUE AS coverable,
  CASE
    WHEN billing = 'unknown' THEN TRY_CAST(
      p_billed
      * coalesce(by_own, by_sibling, by_profile, CAST(by_formula AS DECIMAL(38, 18)))
      AS DECIMAL(18, 12)
    )
    ELSE cost_confirmed
  END AS cost_expected,
  CASE
    WHEN billing = 'billed' AND cost_confirmed IS NOT NULL THEN 'own'
    WHEN billing <> 'unknown' THEN NULL
    WHEN by_own IS NOT NULL THEN 'own'
    WHEN by_sibling IS NOT NULL THEN 'sibling'
    WHEN by_profile IS NOT NULL THEN 'profile'
    WHEN by_formula IS NOT NULL THEN 'formula'
  END AS expected_basis
FROM bounded
