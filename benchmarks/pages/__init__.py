"""Documentation that is made by commands, and what it shares.

pasted             runs again what README.md and docs/*.md paste
published          Markdown tables, published profiles and measurements
api_reference      docs/api.md, from signatures and docstrings
command_reference  docs/commands.md, from the parsers
file_reference     docs/files.md, from the definitions that read the files
reproductions      docs/reproductions.md, by section
structure          rooms, floors, arrows and words of the code
browser            the system's Chromium under Playwright
pictures           the dashboard's pictures
"""
