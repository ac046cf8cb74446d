"""What surrounds the figures: shell, controls, cards, routes, security.

cards         the frame of a card: a title, its controls, an export menu, the figure; tables, plain and sorted
compression   answers compressed on their way out
controls      the left rail: a control for each field of a Configuration, with a remark
panels        what the page fetches and fills in by itself: HTML and figures as JSON, and errors as sentences; callbacks
              that run in the browser: functions of assets/page.js
remarks       what stands below the controls: where a value is from, what is offered, why one is gone
routes        what the browser fetches beside callbacks: the timeline's spans, drawings, and a run in other forms:
              report, plan, trace, table of tasks, and the command or the script that makes it again
security      what the server lets in and what browsers may do with what it sends
shell         what surrounds every page: header, theme, toasts, help, the shared state, and which page an address
              shows
"""
