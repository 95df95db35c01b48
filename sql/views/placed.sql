-- Attempts of requests that have more to them than one complete row. Internal: the engine sorts
-- these rows by request and puts beside each its place in its operation (MONEY.md, section 2),
-- which the view `attempts` reads as `placed`; counted and is_retry are then as placed.
SELECT * FROM attempts_near WHERE to_place(service, request_id)
