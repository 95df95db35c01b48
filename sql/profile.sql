-- What the provider counted, an attempt a row, its kind beside it and the rows of a kind together:
-- what the profile of a day is made of. Internal: the leader asks it for each day, about the seven
-- days before.
--
-- What is not known is a kind of its own. The output of a model that charges none is none where it
-- is not told. Answers from a cache used nothing.
SELECT
  provider,
  model,
  service,
  power_of_two(max_tokens) AS max_tokens_pow2,
  input_tokens,
  coalesce(output_tokens, 0) AS output_tokens
FROM attempts
WHERE ts >= $since AND ts < $until
  AND counted AND evidence = 'usage' AND cache_hit IS NOT TRUE
  AND input_tokens IS NOT NULL AND (output_tokens IS NOT NULL OR output_usd_per_mtok = 0)
ORDER BY provider, model, service, max_tokens_pow2
