-- An attempt a row, as everyone queries it: `attempts_raw` with hashes as text and expected cost.
--
-- cost_expected: confirmed, or p_billed x cost_ceiling where it is unknown whether the provider
-- billed; null where neither is known, which no sum may take for 0. Digits beyond the twelfth
-- are rounded once per attempt.
SELECT
  * REPLACE (
    prompt_hash_kind || ':' || encode(prompt_hash, 'hex') AS prompt_hash,
    wire_prompt_hash_kind || ':' || encode(wire_prompt_hash, 'hex') AS wire_prompt_hash,
    system_hash_kind || ':' || encode(system_hash, 'hex') AS system_hash
  ),
  CASE
    WHEN billing = 'unknown' THEN CAST(p_billed * cost_ceiling AS DECIMAL(18, 12))
    ELSE cost_confirmed
  END AS cost_expected,
  CASE
    WHEN billing = 'unknown' AND p_billed * cost_ceiling IS NOT NULL THEN 'formula'
    WHEN billing = 'billed' AND cost_confirmed IS NOT NULL THEN 'own'
  END AS expected_basis
FROM attempts_raw
