-- What a window holds, beside the rows of any one job. One row.
SELECT
  coalesce(sum(attempts), 0) AS attempts,
  coalesce(sum(attempts) FILTER (WHERE counted), 0) AS counted,
  coalesce(sum(attempts) FILTER (WHERE counted AND retry IS NULL), 0) AS unnumbered,
  coalesce(sum(unpriced) FILTER (WHERE counted), 0) AS unpriced,
  coalesce(sum(coverable) FILTER (WHERE counted), 0) AS answers,
  coalesce(sum(covered) FILTER (WHERE counted), 0) AS answers_with_usage,
  (SELECT count(*) FROM attempts_raw WHERE date IS NULL AND ts IS NULL) AS timeless
FROM rollup
WHERE hour >= $since AND hour < $until
