-- What is redundant in the window, by entity: the cost per hour where the window is the last hour.
-- Nothing redundant costs nothing; redundant attempts of which no cost is known have none.
-- {entity} is what names one.
WITH attempt AS (
  SELECT
    {entity} AS entity,
    redundant, cost_confirmed, cost_expected, cost_ceiling
  FROM attempts
  WHERE counted AND ts >= $since AND ts < $until
),
sums AS (
  SELECT
    entity,
    count(*) FILTER (WHERE redundant) AS redundant,
    sum(cost_confirmed) FILTER (WHERE redundant) AS confirmed,
    sum(cost_expected) FILTER (WHERE redundant) AS expected,
    sum(cost_ceiling) FILTER (WHERE redundant) AS ceiling
  FROM attempt
  GROUP BY entity
)
SELECT
  entity,
  CAST(CASE WHEN redundant = 0 THEN 0 ELSE confirmed END AS DECIMAL(38, 12)) AS confirmed,
  CAST(CASE WHEN redundant = 0 THEN 0 ELSE expected END AS DECIMAL(38, 12)) AS expected,
  CAST(CASE WHEN redundant = 0 THEN 0 ELSE ceiling END AS DECIMAL(38, 12)) AS ceiling
FROM sums
