"""What the end-to-end tests share: made events and what is due for them (`events`), the broker
(`broker`), processes and lakes (`world`), and the running of cases (`cases`).

A folder, so that scripts/test, which runs tests/e2e/*.py, does not take it for a test.
"""
