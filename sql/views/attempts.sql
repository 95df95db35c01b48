-- An attempt a row, as everyone queries it: the stored row, and what its operation makes of it.
--
-- Lines that a later line of the same attempt replaced are not there. is_retry is told of what
-- the format gave no number, too; counted is false of what was logged twice. operation_id is the
-- lineage of the operation's first attempt, op_place an attempt's place in it from 0. outcome and
-- role are null while the operation is open.
--
-- redundant: what the toll is made of. coverable: an answer that can lack the provider's usage; an
-- attempt of unknown billing never does.
--
-- cost_expected: confirmed, or p_billed x an estimate where it is unknown whether the provider
-- billed; null where neither is known, which no sum may take for 0. expected_basis names the
-- estimate: the attempt's own tokens, a sibling's, or the formula. Digits beyond the twelfth are
-- rounded once per attempt.
WITH placed_attempt AS (
  SELECT
    it.* EXCLUDE (counted, is_retry),
    coalesce(place.counted, it.counted) AS counted,
    coalesce(place.is_retry, it.is_retry) AS is_retry,
    coalesce(place.first_source, it.source)
      || '/' || coalesce(place.first_partition, it.source_partition)
      || '/' || coalesce(place.first_offset, it.source_offset)
      || '/' || coalesce(place.first_index, it.source_index) AS operation_id,
    place.op_seq,
    coalesce(place.op_place, 0) AS op_place,
    coalesce(place.op_attempts, 1) AS op_attempts,
    coalesce(place.is_hedge, FALSE) AS is_hedge,
    coalesce(place.double_logged, FALSE) AS double_logged,
    coalesce(place.overlong, FALSE) AS overlong,
    CASE
      WHEN place.source IS NOT NULL THEN place.outcome
      WHEN it.decision = 'success' THEN 'delivered'
      WHEN it.decision = 'cancelled' THEN 'cancelled'
      WHEN it.error_class IN ('read', 'stream') THEN 'timed_out'
      ELSE 'failed'
    END AS outcome,
    CASE
      WHEN place.source IS NOT NULL THEN place.role
      WHEN it.cache_hit THEN 'cached'
      WHEN it.decision = 'success' THEN 'delivered'
      WHEN it.decision = 'cancelled' OR it.error_class = 'cancelled' THEN 'cancelled'
      ELSE 'undelivered'
    END AS role,
    -- Zero tokens of an attempt that failed are unknown, not none.
    CAST(NULLIF(it.input_tokens, 0) AS DECIMAL(15, 0)) AS own_input,
    CAST(place.sibling_input AS DECIMAL(15, 0)) AS sibling_input,
    CAST(
      -- Where the provider stops on a disconnect, nothing after it was made.
      CASE WHEN it.p_billed = 1 THEN it.received_output_tokens ELSE NULLIF(it.output_tokens, 0) END
      AS DECIMAL(15, 0)
    ) AS own_output,
    CAST(
      CASE WHEN it.p_billed = 1 THEN it.received_output_tokens ELSE place.sibling_output END
      AS DECIMAL(15, 0)
    ) AS sibling_output,
    CAST(it.max_tokens * coalesce(it.n, 1) AS DECIMAL(15, 0)) AS output_max,
    CASE WHEN it.billing = 'unknown' THEN it.input_usd_per_mtok END AS input_price,
    CASE WHEN it.billing = 'unknown' THEN it.output_usd_per_mtok END AS output_price
  -- The engine holds the left side in memory: the few, not all.
  FROM placed AS place
  RIGHT JOIN attempts_near AS it
    ON place.source_offset = it.source_offset
    AND place.source_partition = it.source_partition
    AND place.source = it.source
    AND place.source_index = it.source_index
  WHERE place.superseded IS NOT TRUE
),
-- A million tokens at a price, in millionths of it.
estimated AS (
  SELECT
    * EXCLUDE (
      own_input, sibling_input, own_output, sibling_output, output_max, input_price, output_price
    ),
    (own_input * input_price + own_output * output_price) * 0.000001 AS by_own,
    (sibling_input * input_price + sibling_output * output_price) * 0.000001 AS by_sibling,
    TRY_CAST(
      (sibling_input * input_price + output_max * output_price) * 0.000001 AS DECIMAL(18, 12)
    ) AS sibling_ceiling
  FROM placed_attempt
),
bounded AS (
  SELECT
    * EXCLUDE (cost_ceiling, sibling_ceiling),
    coalesce(cost_ceiling, sibling_ceiling) AS cost_ceiling
  FROM estimated
)
SELECT
  * EXCLUDE (by_own, by_sibling)
  REPLACE (
    prompt_hash_kind || ':' || encode(prompt_hash, 'hex') AS prompt_hash,
    wire_prompt_hash_kind || ':' || encode(wire_prompt_hash, 'hex') AS wire_prompt_hash,
    system_hash_kind || ':' || encode(system_hash, 'hex') AS system_hash
  ),
  role = 'repeat' OR role = 'undelivered' AND op_attempts > 1 AS redundant,
  error_class IN ('none', 'truncated', 'invalid_output') AND cache_hit IS NOT TRUE AS coverable,
  CASE
    WHEN billing = 'unknown' THEN TRY_CAST(
      p_billed * coalesce(by_own, by_sibling, CAST(cost_ceiling AS DECIMAL(38, 18)))
      AS DECIMAL(18, 12)
    )
    ELSE cost_confirmed
  END AS cost_expected,
  CASE
    WHEN billing = 'billed' AND cost_confirmed IS NOT NULL THEN 'own'
    WHEN billing <> 'unknown' THEN NULL
    WHEN by_own IS NOT NULL THEN 'own'
    WHEN by_sibling IS NOT NULL THEN 'sibling'
    WHEN cost_ceiling IS NOT NULL THEN 'formula'
  END AS expected_basis
FROM bounded
