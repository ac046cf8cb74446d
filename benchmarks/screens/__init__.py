"""What the dashboard's screens take in a real browser, beside their budgets.

budgets    what one page takes from a click to its numbers, panels and timeline
__main__   those, cold pages, page switches and many users: python -m benchmarks.screens
"""
