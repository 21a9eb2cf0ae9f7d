"""Analytics: the figures as assets, and the checks that guard them."""
